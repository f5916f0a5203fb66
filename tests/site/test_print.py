"""Paper: pages as the browser prints them on A4 and on Letter, read again from the PDF."""

from __future__ import annotations

import io
import re
import unicodedata
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pypdf import PdfReader

from tests.conftest import ROOT, listen

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

TOPICS = sorted(path.parent.name for path in ROOT.glob("content/topics/*/topic.yml"))[:2]
# One page of every kind that lessons have; Learn and the summary of two topics.
PRINTED = [
    *(f"{topic}/{mode}" for topic in TOPICS for mode in ("learn", "summary")),
    *(f"{TOPICS[0]}/{mode}" for mode in ("why", "trace", "try", "challenge", "cost", "recall")),
    f"{TOPICS[1]}/deep",
    f"{TOPICS[1]}/experiment",
]
SIZES_OF = {"A4": (595.3, 841.9), "Letter": (612, 792)}  # points
PAPER = {"width": 673, "height": 1017}  # what A4 leaves between our margins, in CSS pixels
TEXTS = "them => them.map(one => one.textContent)"
SEEN = "them => them.filter(one => one.getClientRects().length).map(one => one.outerHTML)"
SIZES = """them => them.map(one => one.getBoundingClientRect()).filter(box => box.width)
    .map(box => [box.width / 96 * 25.4, box.height / 96 * 25.4])"""
WIDGETS = ", ".join(
    ("button", "input[type=range]", "[popover]", ".pb-controls", ".pb-calculator-form", ".pb-steps")
)


class Paper(NamedTuple):
    """A page of the book on paper: the text and the size of each sheet, and the page's words."""

    sheets: list[str]
    sizes: list[tuple[float, float]]
    headings: list[str]
    buttons: list[str]
    widgets: list[str]
    charts: list[tuple[float, float]]


def squeezed(text: str) -> str:
    """A text without spaces and ligatures, of which PDF has its own."""
    return re.sub(r"\s+", "", unicodedata.normalize("NFKC", text))


def _printed(page: Page, size: str) -> Paper:
    headings = page.locator(":is(h1, h2, h3, h4, .pb-figure-title):visible").evaluate_all(TEXTS)
    buttons = page.locator("article button").evaluate_all(TEXTS)
    reader = PdfReader(io.BytesIO(page.pdf(format=size)))
    page.set_viewport_size(PAPER)
    page.emulate_media(media="print")
    return Paper(
        [sheet.extract_text() for sheet in reader.pages],
        [(float(one.mediabox.width), float(one.mediabox.height)) for one in reader.pages],
        headings,
        [text.strip() for text in buttons if text.strip()],
        page.locator(WIDGETS).evaluate_all(SEEN),
        page.locator("figure svg").evaluate_all(SIZES),
    )


@pytest.fixture(scope="module")
def paper(built_site: Path, browser: Browser) -> Callable[..., Paper]:
    """Prints a page for a reader who has answered nothing."""
    known: dict[tuple[str, bool, str], Paper] = {}

    def printed(name: str, *, script: bool = True, size: str = "A4") -> Paper:
        key = (name, script, size)
        if key not in known:
            context = browser.new_context(
                viewport={"width": 1280, "height": 900}, java_script_enabled=script
            )
            page, complaints = context.new_page(), list[str]()
            listen(page, complaints)
            page.goto((built_site / "topics" / f"{name}.html").as_uri())
            known[key] = _printed(page, size)
            context.close()
            assert complaints == []
        return known[key]

    return printed


@pytest.mark.parametrize("topic", TOPICS)
def test_learn_with_all_its_answers_takes_at_most_seven_sheets(paper, topic):
    assert len(paper(f"{topic}/learn").sheets) <= 7


@pytest.mark.parametrize("size", SIZES_OF)
@pytest.mark.parametrize("topic", TOPICS)
def test_a_summary_takes_exactly_one_sheet(paper, topic, size):
    summary = paper(f"{topic}/summary", size=size)
    assert len(summary.sizes) == 1
    assert summary.sizes[0] == pytest.approx(SIZES_OF[size], abs=1)
    assert all(squeezed(one) in squeezed(summary.sheets[0]) for one in summary.headings)
    assert summary.sheets[0].count("holds") >= 4  # the verdicts of its laws


@pytest.mark.parametrize("name", PRINTED)
def test_paper_shows_nothing_that_one_operates(paper, name):
    printed = paper(name)
    assert printed.widgets == []
    lines = {line.strip() for sheet in printed.sheets for line in sheet.splitlines()}
    assert lines.isdisjoint(printed.buttons)
    if name.endswith("/learn"):
        assert len(printed.buttons) > 3  # on the screen


@pytest.mark.parametrize("script", [True, False])
@pytest.mark.parametrize("topic", TOPICS)
def test_paper_has_the_whole_lesson_and_its_answers(paper, topic, built_site, script):
    printed = squeezed(" ".join(paper(f"{topic}/learn", script=script).sheets))
    html = (built_site / "topics" / topic / "learn.html").read_text(encoding="utf-8")
    for waiting, fewest in (('insight" data-after="[^"]+', 1), ("why", 9)):
        found = re.findall(rf'<div class="pb-{waiting}">(.*?)</div>', html, re.DOTALL)
        assert len(found) >= fewest
        begins = [squeezed(unescape(re.sub(r"<[^>]+>", "", one))).split(".")[0] for one in found]
        assert [one for one in begins if one not in printed] == []
    assert "Thenumbersbehindthefigure" in printed
