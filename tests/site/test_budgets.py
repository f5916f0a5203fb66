"""How heavy a page of the real book may be: its elements and bytes, and what it loads of ours."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.site.html_reading import Reading, pages, read

LESSON_ELEMENTS, LESSON_BYTES = 6_000, 250_000
PAGE_ELEMENTS = 8_000
JS_BYTES, JS_BYTES_WITHOUT_ITEM, CSS_BYTES = 14_000, 4_000, 9_000
HOME_BYTES = 100_000  # all that home loads, the theme's files included
OWN = "assets/"
OF_THE_THEME = ("assets/javascripts/", "assets/stylesheets/")
OF_A_FIGURE = ("assets/figures/", "assets/play.js")  # counted in a figure's own budget


@pytest.fixture(scope="module")
def readings(built_site: Path) -> dict[str, Reading]:
    return {path.relative_to(built_site).as_posix(): read(path) for path in pages(built_site)}


def _is_lesson(page: str) -> bool:
    return page.startswith("topics/") and page.count("/") == 2 and not page.endswith("index.html")


def _allowed(page: str) -> tuple[int, int | None]:
    if not _is_lesson(page):
        return PAGE_ELEMENTS, None
    return LESSON_ELEMENTS, LESSON_BYTES


def test_no_page_has_more_elements_or_bytes_than_it_may(built_site, readings):
    heavy = []
    for page, reading in readings.items():
        most, most_bytes = _allowed(page)
        num_bytes = (built_site / page).stat().st_size
        if len(reading.tags) > most:
            heavy.append(f"{page}: {len(reading.tags)} elements, {most} allowed")
        if most_bytes and num_bytes > most_bytes:
            heavy.append(f"{page}: {num_bytes} bytes, {most_bytes} allowed")
    assert not heavy


def _loaded(page: str, site: Path, reading: Reading, suffix: str) -> set[str]:
    """The scripts or style sheets that a page loads, by their paths in the site."""
    return {
        ((site / page).parent / link).resolve().relative_to(site.resolve()).as_posix()
        for tag in reading.tags
        for link in [tag.attributes.get("src" if suffix == ".js" else "href", "")]
        if tag.name in ("script", "link") and link.endswith(suffix)
    }


def _own_bytes(site: Path, page: str, reading: Reading, suffix: str) -> int:
    """The gzipped bytes of our own files that a page loads."""
    own = [
        one
        for one in _loaded(page, site, reading, suffix)
        if one.startswith(OWN) and not one.startswith((*OF_THE_THEME, *OF_A_FIGURE))
    ]
    return sum(_gzipped(site / one) for one in own)


def _gzipped(path: Path) -> int:
    return len(gzip.compress(path.read_bytes(), 9))


def test_home_loads_in_few_bytes(built_site, readings):
    home = readings["index.html"]
    assert not [tag for tag in home.tags if tag.name in ("img", "iframe")]
    loaded = {
        one for kind in (".js", ".css") for one in _loaded("index.html", built_site, home, kind)
    }
    assert len(loaded) > 5
    assert sum(_gzipped(built_site / one) for one in {"index.html", *loaded}) <= HOME_BYTES


def test_no_page_loads_more_script_or_style_of_ours_than_it_may(built_site, readings):
    heavy = []
    for page, reading in readings.items():
        asks = any("pb-item" in tag.classes for tag in reading.tags)
        most = JS_BYTES if asks else JS_BYTES_WITHOUT_ITEM
        scripts = _own_bytes(built_site, page, reading, ".js")
        styles = _own_bytes(built_site, page, reading, ".css")
        assert styles, page
        if scripts > most:
            heavy.append(f"{page}: {scripts} bytes of script, {most} allowed")
        if styles > CSS_BYTES:
            heavy.append(f"{page}: {styles} bytes of style, {CSS_BYTES} allowed")
    assert not heavy
