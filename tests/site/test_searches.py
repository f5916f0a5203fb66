"""The search: what learners type finds what they look for, and no page's answer is given away."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
import yaml

from tests.conftest import BROWSER_SECONDS, ROOT, listen, slowness, wait_until
from tests.site.html_reading import Reading, pages, read

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

LISTED = yaml.safe_load(Path(__file__).with_name("searches.yml").read_text(encoding="utf-8"))
SEARCHES = [
    {**one, "types": typed}
    for one in LISTED
    for typed in (one["types"] if isinstance(one["types"], list) else [one["types"]])
]
GLOSSARY = yaml.safe_load((ROOT / "content" / "glossary.yml").read_text(encoding="utf-8"))
TERMS = [
    (typed, term["term"])
    for term in GLOSSARY["terms"]
    for typed in (term["term"], *term.get("also", []))
]
HIDING = frozenset({"pb-answer", "pb-hint", "pb-option", "pb-reveal"})
# What no entry has: answers, evidence, listings, runs, and numbers in cells.
CLOSED = frozenset(
    [
        *("data-search-exclude", "data-after", "annotation", "pb-answer", "pb-hint", "pb-whole"),
        *("pb-backing", "pb-claim", "pb-runs", "pb-number"),
    ]
)
# Of what is typed, the share that finds what was looked for.
FIRST, AMONG_THREE, AMONG_TWO = 0.85, 0.95, 0.95
MUON = "topics/sharding/deep-in-practice.html#optimizers-that-need-whole-matrices"
OWNERS = "topics/precision/deep-optimizers-of-whole-matrices.html"
LONG = 30  # letters of a sentence that says something
FORGET = """() => {
  for (const name of ["__list", "__meta"])
    document.querySelector(".md-search-result" + name).replaceChildren();
}"""
# Enter opens the link with the highest score; the results are sorted by the best of each page.
BEST = """() =>
  [...document.querySelectorAll(".md-search-result__item")].slice(0, 3).map((item) => {
    const links = [...item.querySelectorAll("a")];
    const score = (link) => Number(link.querySelector("[data-md-score]").dataset.mdScore);
    const [best] = links.sort((one, other) => score(other) - score(one));
    return [best.href, best.querySelector("h1, h2").textContent]; })"""
# The headings of the first two pages of results.
FIRST_TWO = """() =>
  [...document.querySelectorAll(".md-search-result__item")].slice(0, 2).flatMap((item) =>
    [...item.querySelectorAll("a")].map((link) =>
      [link.href, link.querySelector("h1, h2").textContent]))"""


class Searching(NamedTuple):
    """A page of the book with the search open, and where the book stands."""

    page: Page
    address: str

    def types(self, words: str) -> None:
        """Put words into the search, and wait until it has answered."""
        self.page.evaluate(FORGET)
        self.page.locator(".md-search__input").fill(words)
        self.page.keyboard.press("End")  # the search listens to keys
        meta = self.page.locator(".md-search-result__meta")
        wait_until(lambda: meta.text_content().strip())

    def best(self, words: str) -> list[tuple[str, str]]:
        """Of the first three pages, the path and anchor that is best, and the heading shown."""
        self.types(words)
        found = wait_until(lambda: self.page.evaluate(BEST))
        return [(address.removeprefix(self.address), heading) for address, heading in found]

    def first(self, words: str) -> tuple[str, str]:
        """What Enter opens."""
        return self.best(words)[0]


@pytest.fixture(scope="module")
def searching(built_site: Path, browser: Browser) -> Iterator[Searching]:
    """The home page, opened from disk, with the search open."""
    address = f"{built_site.as_uri()}/"
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(1000 * BROWSER_SECONDS * slowness())
    complaints: list[str] = []
    listen(page, complaints)
    page.goto(f"{address}index.html")
    page.locator(".md-search__input").click()
    yield Searching(page, address)
    page.close()
    assert complaints == []


@pytest.fixture
def searches():
    """What is typed; `make soak` types all."""
    return SEARCHES[::6]


def _is_wanted(one, opened, heading):
    is_page = re.fullmatch(rf"{one['page']}(-[\w-]+)?\.html", opened.split("#")[0])
    return bool(is_page and one.get("heading", "").lower() in heading.lower())


def test_what_learners_type_opens_what_they_look_for(searching, searches):
    others = {}
    num_first = num_shown = 0
    for one in searches:
        best = searching.best(one["types"])
        wanted = [_is_wanted(one, *found) for found in best]
        num_first += wanted[:1] == [True]
        num_shown += any(wanted)
        if not any(wanted):
            others[one["types"]] = best
    assert num_first >= FIRST * len(searches), others
    assert num_shown >= AMONG_THREE * len(searches), others


@pytest.mark.parametrize(
    ("typed", "place"),
    [
        ("Muon", MUON),
        ("Muon optimizer shards", MUON),
        ("Muon sharded update differs", OWNERS),
        ("CheckpointError", "topics/meshes-and-experts/deep-a-router-and-its-experts.html"),
        ("RendezvousClosedError", "first-run.html#row-rendezvousclosederror"),
        ("LMS", "teach.html"),
        ("grdient acumulation", "glossary.html#term-gradient-accumulation"),  # one slip each
    ],
)
def test_a_rare_word_wins_over_common_ones(searching, typed, place):
    assert searching.first(typed)[0] == place


def test_a_word_that_no_page_has_is_named_beside_what_is_near(searching):
    searching.first("loss pmapped")
    assert searching.page.locator(".md-search-result__terms del").all_text_contents() == ["pmapped"]


def test_a_pasted_traceback_opens_the_section_of_its_message(searching):
    frame = (
        'File "/opt/torch/nn/modules/module.py", line 1751, in _call_impl  return forward_call() '
    )
    message = "RuntimeError: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor"
    opened, _ = searching.first(f"Traceback (most recent call last): {20 * frame}{message}")
    assert opened == "reports.html#mixed-torchtensor-and-dtensor-under-fsdp"


def test_a_word_that_is_typed_in_part_is_found_and_marked(searching):
    searching.first("gradient accumu")
    marks = searching.page.locator(".md-search-result__item:first-child mark")
    assert "accumulation" in {mark.lower() for mark in marks.all_text_contents()}


@pytest.fixture
def terms():
    """Spellings of the glossary, and the entry of each; `make soak` types all."""
    return TERMS[::8]


def test_a_term_finds_its_entry_of_the_glossary_among_the_first_two(searching, terms):
    lost = {}
    for typed, term in terms:
        searching.first(typed)
        found = searching.page.evaluate(FIRST_TWO)
        address = f"{searching.address}glossary.html#"
        if not any(href.startswith(address) and heading == term for href, heading in found):
            lost[typed] = found
    assert len(lost) <= (1 - AMONG_TWO) * len(terms), lost


def test_an_error_message_with_marks_of_its_own_is_searched_as_words(searching):
    error = '[rank0]: "torch.OutOfMemoryError": CUDA out of memory -9 +2.00~ GiB^'
    opened, _ = searching.first(error)
    assert opened == "guide.html#memory-runs-out"


def test_a_result_says_the_topic_and_the_kind_of_its_lesson(searching):
    searching.first("no_sync")
    first = searching.page.locator(".md-search-result__item:first-child h1")
    assert first.locator(".pb-eyebrow").text_content() == "Data parallelism with DDP · Experiment"


def _plain(html: str) -> str:
    html = re.sub(r"<annotation.*?</annotation>", "", html)
    return " ".join(unescape(re.sub(r"<[^>]+>", "", html)).split())


@pytest.fixture(scope="module")
def entries(built_site: Path) -> dict[str, list[dict[str, str]]]:
    """The entries of the built index, by page."""
    found: dict[str, list[dict[str, str]]] = {}
    for part in (built_site / "search").glob("sections-*.js"):
        for location, title, text, *_ in json.loads(part.read_text("utf-8").partition("=")[2]):
            entry = {"location": location, "title": title, "text": text}
            found.setdefault(location.partition("#")[0], []).append(entry)
    return found


@pytest.fixture(scope="module")
def readings(built_site: Path) -> dict[str, Reading]:
    return {path.relative_to(built_site).as_posix(): read(path) for path in pages(built_site)}


def test_no_page_is_found_by_what_it_shows_only_after_an_answer(entries, readings):
    num_hidden = 0
    for page, reading in readings.items():
        index = "\n".join(_plain(f"{e['title']} {e['text']}") for e in entries.get(page, []))
        told: dict[bool, set[str]] = {True: set(), False: set()}  # what waits, and what does not
        for text, above in reading.texts:
            waits = any("data-after" in tag.attributes or tag.classes & HIDING for tag in above)
            shown = {"summary", "pre", "code", "h2", "h3", "figcaption"}
            if len(text) >= LONG and not (waits and shown & {tag.name for tag in above}):
                told[waits].add(" ".join(text.split()))
        only_after = {one for one in told[True] - told[False] if len(one) >= LONG}
        assert not [one for one in only_after if one in index], page
        num_hidden += len(only_after)
    assert num_hidden > 2000


def test_sentences_of_lessons_are_found(entries, built_site):
    for path in sorted((built_site / "topics").glob("*/*.html")):
        if path.stem in ("index", "recall", "summary") or path.stem.startswith("lab-"):
            continue
        html = path.read_text(encoding="utf-8")
        lede = html[html.index('<div class="pb-lede">') :]
        first = _plain(lede[lede.index("<p>") : lede.index("</p>")])
        longest = max(re.split(r"(?<=[.?!]) ", first), key=len).replace(" ", "")
        page = path.relative_to(built_site).as_posix()
        said = " ".join(_plain(one["text"]) for one in entries[page])
        assert longest in said.replace(" ", ""), page


def _rows(reading: Reading) -> dict[str, str]:
    """The words of each row with an anchor that no page closes, numbers in cells left out.

    A note in a row of its own belongs to the row above it.
    """
    said: dict[str, str] = {}
    anchor = ""
    for text, above in reading.texts:
        rows = [tag for tag in above if tag.name == "tr"]
        marks = {mark for tag in above for mark in (tag.name, *tag.classes, *tag.attributes)}
        if rows and "pb-note" not in rows[0].classes:  # a cell may hold a table of its own
            anchor = rows[0].attributes.get("id", "")
        if rows and anchor and not CLOSED & marks:
            said[anchor] = f"{said.get(anchor, '')} {text}"
    return {anchor: "".join(words.split()) for anchor, words in said.items()}


def test_each_row_of_a_table_that_says_something_is_an_entry_with_its_words(entries, readings):
    num_rows = 0
    for page, reading in readings.items():
        found = {one["location"]: one for one in entries.get(page, [])}
        for anchor, said in _rows(reading).items():
            one = found[f"{page}#{anchor}"]
            assert said == "".join(_plain(one["title"] + one["text"]).split()), anchor
            num_rows += 1
    assert num_rows > 200


def test_a_hit_in_a_folded_table_leads_to_its_row(built_site, open_page):
    page = open_page(built_site / "first-run.html")
    page.evaluate("location.hash = document.querySelector('details tr[id*=WorkNCCL i]').id")
    wait_until(lambda: page.locator("tr:target:visible").count() == 1)


def test_a_figure_that_readers_play_with_is_an_entry_also_where_it_waits(entries):
    page = "topics/sharding/learn.html"
    [schedule] = [one for one in entries[page] if one["location"] == f"{page}#figure-sharded"]
    assert schedule["title"]
    assert schedule["text"] == ""
