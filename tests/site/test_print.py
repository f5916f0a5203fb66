"""Paper: pages as the browser prints them, read again from the PDF."""

import io
import re
import unicodedata
from html import unescape

import pytest
from pypdf import PdfReader

from tests.conftest import ROOT
from tests.site.asking import CHALLENGE, RECALL, RIGHT, Asking

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


def test_the_cheat_sheet_takes_two_sheets(built_site, open_page):
    page = open_page(built_site / "cheat-sheet.html")
    titles = page.locator("h2").all_text_contents()
    for name in SIZES_OF:
        first, second = (squeezed(one.extract_text()) for one in printed(page, name))
        assert [one for one in titles if squeezed(one) not in first + second] == []
        assert first.count("holds") + second.count("holds") >= len(titles)


def _text(sheets):
    """What stands on paper, as one text without spaces."""
    return squeezed(" ".join(sheet.extract_text() for sheet in sheets))


def read(page):
    """The open page on paper, as one text without spaces."""
    return _text(printed(page))


def _beginnings(html: str, css: str) -> list[str]:
    """The first sentence of each part of a class."""
    found = re.findall(rf'<div class="pb-{css}">(.*?)</div>', html, re.DOTALL)
    return [squeezed(unescape(re.sub(r"<[^>]+>", "", one))).split(".")[0] for one in found]


@pytest.mark.parametrize(("topic", "script"), [*zip(TOPICS, (True, False), strict=True)])
def test_paper_has_the_whole_lesson(built_site, open_page, topic, script):
    path = built_site / "topics" / topic / "learn.html"
    sheets = printed(open_page(path, java_script_enabled=script))
    assert len(sheets) <= 7
    text = _text(sheets)
    insights = _beginnings(path.read_text(encoding="utf-8"), "insight")
    assert insights
    assert [one for one in insights if one not in text] == []
    assert "Thenumbersbehindthefigure" in text


def test_paper_leaves_closed_what_a_reader_left_closed(built_site, open_page):
    page = open_page(built_site / "plan" / "llama_8b.html")
    fold = page.locator("details:has(> .pb-inside > .pb-claim)").first
    said = squeezed(fold.locator(".pb-claim > summary").first.text_content())[:40]
    assert said not in read(page)
    fold.locator("> summary").click()
    assert said in read(page)


def test_paper_has_the_answers_on_sheets_of_their_own(frozen_site, open_page):
    path = frozen_site / CHALLENGE
    whys = [one for one in _beginnings(path.read_text(encoding="utf-8"), "why") if one]
    assert len(whys) > 20
    page = open_page(path)
    # What a reader has answered is printed as a question again.
    Asking(page, "how-many-bytes").give(0)
    sheets = printed(page)
    text = _text(sheets)
    questions, _, answers = text.partition("Answers1")
    assert [one for one in whys if one in questions] == []
    assert [one for one in whys if one not in answers] == []
    assert "Gradientsareasmanyasparameters" in answers
    assert "10.Solveit" in questions
    assert "10.Theanswer:28.0%" in answers
    assert RIGHT in Asking(page, "how-many-bytes").text()  # the screen is as before
    # They begin a sheet: the dialog prints those before it alone.
    assert any(_text([sheet]).startswith("Answers1") for sheet in sheets)


def test_without_scripts_paper_has_the_answers_that_are_open(frozen_site, open_page):
    page = open_page(frozen_site / CHALLENGE, java_script_enabled=False)
    page.locator("#item-how-many-bytes .pb-answer > summary").click()
    text = read(page)
    assert "Eachparameterhasagradient" in text
    assert "Theirdigestsdiffer" not in text


def test_paper_of_recall_asks_every_question_and_answers_it_once(frozen_site, open_page):
    text = read(open_page(frozen_site / RECALL))
    assert text.count("Theirdigestsdiffer") == 1
    assert text.index("9.Question") < text.index("Theirdigestsdiffer")


def test_paper_shows_nothing_that_one_operates(built_site, open_page):
    page = open_page("about:blank")
    page.emulate_media(media="print")
    for name in (f"{TOPICS[0]}/learn", f"{TOPICS[0]}/summary", *OTHERS, f"{TOPICS[1]}/experiment"):
        page.goto((built_site / "topics" / f"{name}.html").as_uri())
        assert page.locator(WIDGETS).evaluate_all(SEEN) == [], name
