"""How heavy a page may be: elements, bytes, scripts, styles, stops of the Tab key, repetition.

Counted on every page of the real book, as a browser would count: the elements of its HTML, what it
loads, and where the Tab key stops with scripts on and every fold closed.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.site.html_reading import Reading, pages, read

if TYPE_CHECKING:
    pass

LESSON_ELEMENTS, LESSON_BYTES = 6_000, 250_000
PAGE_ELEMENTS = 8_000
JS_BYTES, JS_BYTES_WITHOUT_ITEM, CSS_BYTES = 14_000, 4_000, 9_000
DEEP_WORDS = 6_000
NOT_READ = frozenset("code pre script style svg template button form noscript".split())  # noqa: SIM905
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


def _words(reading: Reading) -> int:
    """Words of an article, closed parts and tables included; no code, option or list of links."""
    read_through = [
        text
        for text, within in reading.texts
        if any(one.name == "article" for one in within)
        and not any(
            one.name in NOT_READ
            or "popover" in one.attributes
            or {"pb-option", "pb-contents"} & set(one.classes)
            for one in within
        )
    ]
    return len(re.findall(r"[A-Za-z][A-Za-z’'-]*|\d[\d.,]*", " ".join(read_through)))


def test_deep_is_read_in_one_sitting(readings):
    words = {page: _words(one) for page, one in readings.items() if page.endswith("/deep.html")}
    assert len(words) == 5
    assert {page: count for page, count in words.items() if count > DEEP_WORDS} == {}


def _own_bytes(site: Path, page: str, reading: Reading, suffix: str) -> int:
    """The gzipped bytes of our own files that a page loads."""
    loaded = {
        ((site / page).parent / link).resolve().relative_to(site.resolve()).as_posix()
        for tag in reading.tags
        for link in [tag.attributes.get("src" if suffix == ".js" else "href", "")]
        if tag.name in ("script", "link") and link.endswith(suffix)
    }
    own = [
        one
        for one in loaded
        if one.startswith(OWN) and not one.startswith((*OF_THE_THEME, *OF_A_FIGURE))
    ]
    return sum(len(gzip.compress((site / one).read_bytes(), 9)) for one in own)


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
