"""axe on every page: as it opens and with everything open, light and dark, wide and narrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tests.audit.tools import ToolError, package
from tests.browser import find_browser
from tests.site.axe import OPENED, SCHEMES, in_scheme, violations

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDTHS = (1280, 390)


def problems(address: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each violation: the page's name, and what is wrong in which state."""
    from playwright.sync_api import sync_playwright  # not needed for the other tools

    path = find_browser()
    if path is None:
        raise ToolError("an audit by axe needs Chromium or Chrome")
    script = (package("axe-core") / "axe.min.js").read_text(encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(path))
        page = browser.new_page(reduced_motion="reduce")
        for name in names:
            for state, rule, html, why in _page(page, f"{address}/{name}", script):
                yield name, f"{state}: {rule}: {html} {' '.join(why.split())}"
        browser.close()


def _page(page: Page, address: str, script: str) -> Iterator[tuple[str, str, str, str]]:
    page.goto(address)
    for opened in ("closed", "open"):
        if opened == "open":
            page.evaluate(OPENED)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            for scheme in SCHEMES:
                in_scheme(page, scheme)
                for rule, html, why in violations(page, script=script):
                    yield f"{opened}, {width}, {scheme}", rule, html, why
