"""Paper: pages as the browser prints them, read again from the PDF."""

from __future__ import annotations

import io
import re
import unicodedata
from html import unescape

import pytest
from pypdf import PdfReader

from tests.conftest import ROOT

pytestmark = pytest.mark.browser

TOPICS = sorted(path.parent.name for path in ROOT.glob("content/topics/*/topic.yml"))[:2]
# One page of every other kind that lessons have.
OTHERS = [f"{TOPICS[0]}/{mode}" for mode in ("why", "trace", "try", "challenge", "cost", "recall")]
SIZES_OF = {"A4": (595.3, 841.9), "Letter": (612, 792)}  # points
SEEN = "them => them.filter(one => one.getClientRects().length).map(one => one.outerHTML)"
# A choice that was made stays as its words.
WIDGETS = """button, input[type=range], [popover], .pb-calculator-form, .pb-controls:not(form),
    .pb-controls label:not(:has(:checked))"""


def squeezed(text: str) -> str:
    """A text without spaces and ligatures, of which PDF has its own."""
    return re.sub(r"\s+", "", unicodedata.normalize("NFKC", text))


def printed(page, size="A4"):
    """The open page on paper."""
    return PdfReader(io.BytesIO(page.pdf(format=size))).pages


@pytest.mark.parametrize("topic", TOPICS)
def test_a_summary_takes_exactly_one_sheet(built_site, open_page, topic):
    page = open_page(built_site / "topics" / topic / "summary.html")
    headings = page.locator(":is(h1, h2, h3, h4, .pb-figure-title):visible").all_text_contents()
    for name, size in SIZES_OF.items():
        [sheet] = printed(page, name)
        assert (sheet.mediabox.width, sheet.mediabox.height) == pytest.approx(size, abs=1)
        text = sheet.extract_text()
        assert all(squeezed(one) in squeezed(text) for one in headings)
        assert text.count("holds") >= 4  # the verdicts of its laws


@pytest.mark.parametrize("script", [True, False])
@pytest.mark.parametrize("topic", TOPICS)
def test_paper_has_the_whole_lesson_and_its_answers(built_site, open_page, topic, script):
    path = built_site / "topics" / topic / "learn.html"
    sheets = printed(open_page(path, java_script_enabled=script))
    assert len(sheets) <= 7
    text = squeezed(" ".join(sheet.extract_text() for sheet in sheets))
    html = path.read_text(encoding="utf-8")
    for waiting, fewest in (("insight", 1), ("why", 9)):
        found = re.findall(rf'<div class="pb-{waiting}">(.*?)</div>', html, re.DOTALL)
        assert len(found) >= fewest
        begins = [squeezed(unescape(re.sub(r"<[^>]+>", "", one))).split(".")[0] for one in found]
        assert [one for one in begins if one not in text] == []
    assert "Thenumbersbehindthefigure" in text


def test_paper_shows_nothing_that_one_operates(built_site, open_page):
    page = open_page("about:blank")
    page.emulate_media(media="print")
    for name in (f"{TOPICS[0]}/learn", f"{TOPICS[0]}/summary", *OTHERS, f"{TOPICS[1]}/experiment"):
        page.goto((built_site / "topics" / f"{name}.html").as_uri())
        assert page.locator(WIDGETS).evaluate_all(SEEN) == [], name
