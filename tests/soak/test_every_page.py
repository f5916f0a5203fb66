"""Every page of the book, opened once for both schemes: quiet, in its window, accessible."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.site.html_reading import pages
from tests.site.test_every_page import *  # noqa: F403 - the gate's tests of a page of each kind

pytestmark = [pytest.mark.soak, pytest.mark.browser, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def visited(built_site: Path) -> list[Path]:
    """All pages."""
    return pages(built_site)
