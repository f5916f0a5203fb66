"""Every page of the book: quiet, in its window, readable, printable."""

import pytest

from tests.site.html_reading import pages
from tests.site.test_every_page import test_a_page_of_every_kind_is_quiet_fits_and_can_be_read

__all__ = ["test_a_page_of_every_kind_is_quiet_fits_and_can_be_read"]
pytestmark = [pytest.mark.soak, pytest.mark.browser, pytest.mark.timeout(1800)]


@pytest.fixture
def visited(built_site):
    """All pages."""
    return list(pages(built_site))
