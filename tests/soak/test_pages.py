"""Every page of the book at every width, with what the gate asks of one page of each kind alone."""

import pytest

from tests.site.conftest import seen  # noqa: F401 - a fixture
from tests.site.html_reading import pages
from tests.site.test_figures import *  # noqa: F403 - the gate's tests
from tests.site.test_lessons import *  # noqa: F403

pytestmark = [pytest.mark.soak, pytest.mark.browser, pytest.mark.timeout(1800)]


@pytest.fixture(scope="session")
def kinds(built_site):
    """All pages."""
    return pages(built_site)
