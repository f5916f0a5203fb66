"""The committed estimates of published layouts, each made without its own cluster once more."""

import pytest

from tests.runners.test_published_layouts import (
    test_the_committed_file_is_what_the_list_gives_today,  # noqa: F401
)

pytestmark = pytest.mark.soak


@pytest.fixture
def num_fits():
    return 1000
