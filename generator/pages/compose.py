"""A `Sheet`, which says what a page is made from, → the page. Pure.

A page's content is composed of elements, what stands around it is added, and its facts are read off
both before they are printed. All of it is HTML, so that no Markdown builder changes it; only what
somebody wrote by hand stays Markdown. Code that pages show is read from the files that runs
executed.
"""

import textwrap
from collections.abc import Iterator, Sequence

from generator.content.chain import chain
from generator.content.lesson import DeepFile
from generator.pages import facts
from generator.pages.composed import COMPOSED
from generator.pages.draft import Draft
from generator.pages.elements.element import (
    Anchors,
    Content,
    Element,
    Fold,
    Heading,
    OnThisPage,
    Waiting,
    walk,
)
from generator.pages.elements.questions import Question
from generator.pages.elements.tables import Table
from generator.pages.environment import environment, unbroken
from generator.pages.page import Gathered, Page
from generator.pages.sheets import Sheet
from generator.pages.term_links import TermLinks
from generator.pages.view import label
from generator.pages.views import frame, ways
from generator.printing.folio import Folio, escaped_heading
from generator.printing.markdown import num_links, plain

DESCRIPTION_LENGTH = 180
FEW = 2  # headings of a page without a sidebar
# Keys of a chain whose texts stand on the page that lists its parts.
LISTED_WITH = frozenset({"introduction", "overview", "mental_model", "concept", "takeaways"})
# These name each machine beside its numbers.
OF_MACHINES = ("runs", "machine", "evidence")
# The feet of these name no machine.
UNMEASURED = (*OF_MACHINES, "glossary", "lab", "watched")
HIDDEN = [
    *range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F,
    *range(0x2028, 0x202F), *range(0x2066, 0x206A),
]  # fmt: skip
SPELLED_OUT = {code: f"\\u{code:04x}" for code in HIDDEN}  # what a run printed and nobody would see


def begin(sheet: Sheet, gathered: Gathered) -> Draft:
    """A new page of a sheet."""
    at_hand = gathered.evidence
    evidence = (sheet.lacks is not None and at_hand.reference) or at_hand
    is_marked = not evidence.book.is_reference and sheet.kind not in OF_MACHINES
    folio = Folio(evidence, at_hand, gathered.others, sheet.path, marks_reference=is_marked)
    terms = folio.book.terms if sheet.mode not in (None, "recall") else ()
    return Draft(sheet, folio, TermLinks(terms, folio.root, _num_links(sheet)), gathered)


def printed(sheet: Sheet, gathered: Gathered) -> Page:
    """The page of a sheet: its content, what stands around it, and the facts of both."""
    draft = begin(sheet, gathered)
    content = list(COMPOSED[sheet.kind](draft))
    folio, taken = draft.folio, set[str]()
    for table in (part for part in walk(content) if isinstance(part, Table)):
        table.give_ids(taken)
    title = (label if sheet.is_recorded else folio.line)(sheet.heading)
    if sheet.machine:
        title = title.replace(sheet.machine, unbroken(sheet.machine))
    heading = draft.heading(1, title)
    headings = [heading, *facts.headings(content)]
    # A sitting of Recall takes as long as what is due that day.
    minutes = 0 if sheet.mode == "recall" else facts.minutes(content, folio)
    row = ways.ways(sheet.topic, sheet.mode, folio) if sheet.topic else []
    rail = ways.rail(sheet.path, sheet.topic, row, folio)
    has_ways = bool(row or rail) and sheet.kind != "summary"  # which ticks off nothing
    scripts = facts.scripts(content, draft, has_ways=has_ways)
    # What a trace says is text: no expression, no Markdown.
    about = (label if sheet.kind in OF_MACHINES[:2] else folio.line)(sheet.about)
    page = (
        environment()
        .get_template("page.md.j2")
        .render(
            title=title,
            description=textwrap.shorten(plain(about), DESCRIPTION_LENGTH, placeholder="…"),
            boost=frame.BOOSTS.get(sheet.kind, 1.0),
            hides=_hides(sheet, headings),
            scripts=scripts,
            styles=facts.styles(content, draft),
            under=sheet.under,
            above=[*_above(draft, rail, row, minutes)],
            heading=f"# {escaped_heading(title)}" if sheet.text else heading,
            content=[*_about(draft, content, headings, minutes), *content],
            below=[*_below(draft, content, rail)],
            sources=folio.sources.block(),
        )
    )
    # A summary draws the first state of a figure and loads none of the others.
    return Page(
        content=page.translate(SPELLED_OUT).encode(),
        minutes=minutes,
        headings=headings,
        terms=frozenset(draft.links.used),
        claims=facts.claims(content, folio),
        texts=frozenset(folio.texts),
        scripts=scripts,
        searched=facts.searched(content, heading, is_markdown=bool(sheet.text)),
        assets={path: file for path, file in folio.assets.items() if path in page},
    )


def _hides(sheet: Sheet, headings: Sequence[Heading]) -> list[str]:
    """The sidebars that a page does not show."""
    is_divided = sheet.has_toc or sum(part.is_listed for part in headings[1:]) > FEW
    has_contents = is_divided and (sheet.has_toc or sheet.mode or sheet.lab)
    return ["navigation"] if has_contents else ["navigation", "toc"]


def _above(
    draft: Draft, rail: ways.Rail | None, row: Sequence[ways.Way], minutes: int
) -> Iterator[Element]:
    """What stands above the title."""
    if rail:
        yield frame.Place(rail, minutes)
    if row:
        yield frame.tabs(draft, row, rail)


def _about(
    draft: Draft, content: Content, headings: Sequence[Heading], minutes: int
) -> Iterator[Element]:
    """What stands between the title and the content."""
    sheet, folio = draft.sheet, draft.folio
    if minutes and sheet.mode:
        waits = (part.after for part in walk(content) if isinstance(part, Fold))
        has_waiting = any(waits) or any(isinstance(part, Waiting) for part in walk(content))
        has_measured = any(value.kind == "measured" for value in folio.sources.values)
        yield frame.LessonMeta(sheet.mode, has_measured, has_waiting)
    yield from frame.measured_elsewhere(draft)
    listed = facts.contents(headings) if sheet.has_toc or sheet.mode else []
    if listed:
        yield OnThisPage(listed)
    if folio.book.plan and (former := folio.book.plan.former.get(sheet.path)):
        yield Anchors(former)


def _below(draft: Draft, content: Content, rail: ways.Rail | None) -> Iterator[Element]:
    """What stands below the content."""
    sheet, folio = draft.sheet, draft.folio
    origins = frame.origins(folio)
    yield from frame.notices(draft, origins)
    if meanings := facts.natures(content, folio):
        yield frame.Natures(meanings)
    if any(isinstance(part, Question) for part in walk(content)):
        yield frame.HowSure(bool(sheet.text))
    if rail or sheet.kind == "summary":
        title = sheet.topic.file.title if sheet.topic else ""
        yield frame.Onward(rail, folio.in_link.line(title), folio.root)
    if origins:
        yield frame.foot(folio, origins, names_machines=sheet.kind not in UNMEASURED)


def _num_links(sheet: Sheet) -> int:
    """The links of a page that lists the parts of a chain; no other page has so many."""
    deep = sheet.topic.lessons.get("deep") if sheet.topic else None
    if sheet.kind != "deep" or not deep or not isinstance(deep.model, DeepFile):
        return 0
    texts = (field.text for field in deep.fields if LISTED_WITH.intersection(map(str, field.path)))
    listed = sum(1 + len(part.places) for part in chain(deep.model))
    return listed + sum(map(num_links, texts))
