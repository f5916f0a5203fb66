"""Everything that learners type finds what they look for."""

import pytest

from tests.site.test_searches import *  # noqa: F403 - the gate's tests of a sixth of them
from tests.site.test_searches import SEARCHES, TERMS

pytestmark = [pytest.mark.soak, pytest.mark.browser]


@pytest.fixture
def searches():
    """All of them."""
    return SEARCHES


@pytest.fixture
def terms():
    """All of them."""
    return TERMS
