"""How heavy a page may be: elements, bytes, scripts, styles, stops of the Tab key, repetition.

Counted on every page of the real book, as a browser would count: the elements of its HTML, what it
loads, and where the Tab key stops with scripts on and every fold closed.
"""

from __future__ import annotations

import gzip
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.site.html_reading import Reading, pages, read

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LESSON_ELEMENTS, LESSON_BYTES = 6_000, 250_000
PAGE_ELEMENTS = 8_000
JS_BYTES, JS_BYTES_WITHOUT_ITEM, CSS_BYTES = 14_000, 4_000, 9_000
TAB_STOPS = 300
VARIANT_BYTES = 20_000  # gzipped: what a Recall page loads of a topic's questions on other runs
DEEP_WORDS = 6_000
MINUTES = {"trace": 12, "experiment": 10}
PAGES_OF_A_CLAIM = 3
COLLECTIONS = {"index", "recall", "summary"}  # these repeat on purpose what other pages tell
NOT_READ = frozenset("code pre script style svg template button form noscript".split())  # noqa: SIM905
OWN = "assets/"
OF_THE_THEME = ("assets/javascripts/", "assets/stylesheets/")
OF_A_FIGURE = ("assets/figures/", "assets/play.js")  # counted in a figure's own budget
# The Tab key visits a group of radio buttons once; arrows move inside.
STOPS = """() => new Set([...document.querySelectorAll(
    'a[href], button, input, select, textarea, summary, [tabindex]')].filter(one =>
    one.tabIndex >= 0 && !one.matches(':disabled') &&
    one.checkVisibility({visibilityProperty: true})
).map(one => one.type === 'radio' && one.name
    ? [...document.getElementsByName(one.name)].find(other => other.form === one.form)
    : one)).size"""
SHOW_EVERYTHING = """() => document.querySelector('[data-show-all]')?.click()"""


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


def test_trace_and_experiment_take_as_long_as_they_may(built_site):
    minutes = {
        f"{page.parent.name}/{page.stem}": int(found[1])
        for page in built_site.glob("topics/*/*.html")
        if page.stem in MINUTES
        and (found := re.search(r'pb-meta">.*?>(\d+)<', page.read_text(encoding="utf-8")))
    }
    assert len(minutes) == 10
    assert {page: n for page, n in minutes.items() if n > MINUTES[page.split("/")[1]]} == {}


def test_a_topic_tells_a_claim_on_at_most_three_pages(readings):
    pages_of = defaultdict(set)
    for page, reading in readings.items():
        if not _is_lesson(page) or Path(page).stem in COLLECTIONS:
            continue
        for tag in reading.tags:
            _, found, claim = tag.attributes.get("href", "").partition("#claim-")
            if found:
                pages_of[f"{Path(page).parent.name}: {claim}"].add(Path(page).stem)
    assert len({name.split(":")[0] for name in pages_of}) == 5
    often = {
        name: sorted(pages) for name, pages in pages_of.items() if len(pages) > PAGES_OF_A_CLAIM
    }
    assert often == {}


def test_a_question_is_asked_once_and_on_one_lesson(readings):
    asked = {
        page: [tag.attributes["data-item"] for tag in one.tags if "data-item" in tag.attributes]
        for page, one in readings.items()
        if _is_lesson(page) and Path(page).stem not in COLLECTIONS
    }
    assert sum(map(len, asked.values())) > 100
    assert {page: one for page, one in asked.items() if len(one) > len(set(one))} == {}
    pages_of = defaultdict(list)
    for page, names in asked.items():
        for name in names:
            pages_of[name].append(page)
    assert {name: found for name, found in pages_of.items() if len(found) > 1} == {}


def test_no_page_shows_what_a_run_printed_twice(readings):
    printed = {
        page: Counter(
            text
            for text, within in one.texts
            if len(text) > 60 and any("pb-printed" in tag.classes for tag in within)
        )
        for page, one in readings.items()
    }
    assert sum(map(len, printed.values())) > 20
    assert {page for page, one in printed.items() if max(one.values(), default=0) > 1} == set()


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


def test_questions_on_other_runs_are_light(built_site):
    files = sorted((built_site / "assets" / "variants").glob("*.js"))
    assert files
    sizes = {file.name: len(gzip.compress(file.read_bytes(), 9)) for file in files}
    assert {name: size for name, size in sizes.items() if size > VARIANT_BYTES} == {}


@pytest.mark.browser
def test_the_tab_key_stops_at_most_three_hundred_times_on_a_page(built_site, browser: Browser):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    many, num_more = {}, 0
    for path in pages(built_site):
        page.goto(path.as_uri())
        stops = page.evaluate(STOPS)
        assert stops > 5, path  # the header alone has more
        page.evaluate(SHOW_EVERYTHING)
        shown = page.evaluate(STOPS)
        num_more += shown > stops
        page.evaluate(SHOW_EVERYTHING)  # the choice would stay for the next page
        if max(stops, shown) > TAB_STOPS:
            many[path.relative_to(built_site).as_posix()] = stops, shown
    context.close()
    assert num_more > 20
    assert not many
