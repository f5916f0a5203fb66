"""What the gate asks of some pages and searches: every page at every width, all that is typed."""

import pytest

from tests.site.conftest import seen  # noqa: F401 - a fixture
from tests.site.html_reading import pages
from tests.site.test_lessons import *  # noqa: F403 - the gate's tests
from tests.site.test_look import *  # noqa: F403
from tests.site.test_searches import *  # noqa: F403
from tests.site.test_searches import SEARCHES, TERMS

pytestmark = [pytest.mark.soak, pytest.mark.browser, pytest.mark.timeout(1800)]


@pytest.fixture(scope="session")
def kinds(built_site):
    return pages(built_site)


@pytest.fixture(scope="session")
def looked_at(built_site):
    return pages(built_site)


@pytest.fixture
def searches():
    return SEARCHES


@pytest.fixture
def terms():
    return TERMS
