"""A `Sheet`, which says what a page is made from, → the page. Pure.

A page's content is composed of elements, what stands around it is added, and its facts are read off
both before they are printed. All of it is HTML, so that no Markdown builder changes it; only what
somebody wrote by hand stays Markdown. Code that pages show is read from the files that runs
executed.
"""

import textwrap
from collections.abc import Sequence
from types import SimpleNamespace

from markupsafe import Markup

from proofbook.generator.content.lesson import LessonFile
from proofbook.generator.pages import facts
from proofbook.generator.pages.draft import Draft, Links
from proofbook.generator.pages.elements.element import Content, Fold, Heading, Waiting, walk
from proofbook.generator.pages.elements.tables import Table
from proofbook.generator.pages.environment import environment, label, unbroken
from proofbook.generator.pages.page import Gathered, Page
from proofbook.generator.pages.sheets import Sheet
from proofbook.generator.pages.views import frame, handwritten
from proofbook.generator.printing.folio import Folio
from proofbook.generator.printing.markdown import plain
from proofbook.runners.system.kinds import Kind, PageKind, filling, page_kind

BY_HAND = PageKind("", 1.0)  # of a page by hand
DESCRIPTION_LENGTH = 180
FEW = 2  # headings of a page without a sidebar
HIDDEN = [
    *range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F,
    *range(0x2028, 0x202F), *range(0x2066, 0x206A),
]  # fmt: skip
SPELLED_OUT = {code: f"\\u{code:04x}" for code in HIDDEN}  # what a run printed and nobody would see


def begin(sheet: Sheet, gathered: Gathered) -> Draft:
    """A new page of a sheet."""
    at_hand, (_, kind) = gathered.evidence, _kind_of(sheet)
    evidence = (sheet.missing and at_hand.reference) or at_hand
    is_marked = not evidence.book.is_reference and not kind.names_each
    folio = Folio(evidence, at_hand, gathered.others, sheet.path, marks_reference=is_marked)
    return Draft(sheet, folio, _links(sheet, folio), gathered)


def printed(sheet: Sheet, gathered: Gathered) -> Page:
    """The page of a sheet: its content, what stands around it, and the facts of both."""
    draft, (owner, kind) = begin(sheet, gathered), _kind_of(sheet)
    compose = owner.take(kind.compose) if owner else handwritten.handwritten
    folio = draft.folio
    is_lesson = sheet.kind == sheet.mode  # or, with a mode, a page of its chain
    opening = [draft.lede(draft.lesson(LessonFile).introduction)] if is_lesson else []
    content = [*opening, *compose(draft)]
    if sheet.topic:
        for letters in filling("letters"):
            content += letters(sheet.topic.file, folio, frozenset(folio.texts))
    taken = set[str]()
    for part in walk(content):
        if isinstance(part, Table):
            part.give_ids(taken)
    title = (label if sheet.is_recorded else folio.line)(sheet.heading)
    if sheet.kept:
        title = title.replace(sheet.kept, unbroken(sheet.kept))
    heading = draft.heading(1, title)
    headings = [heading, *facts.headings(content)]
    minutes = facts.minutes(content, folio) if kind.is_timed else 0
    around = _around(draft, kind, title, content, headings)
    page = environment().get_template("page.md.j2").render(page=around)
    # A summary draws the first state of a figure and loads none of the others.
    return Page(
        content=page.translate(SPELLED_OUT).encode(),
        minutes=minutes,
        headings=headings,
        terms=frozenset(draft.links.used),
        claims=frozenset(folio.linked_claims),
        texts=frozenset(folio.texts | folio.sources.texts),
        scripts=around.scripts,
        searched=facts.searched(content, heading, is_markdown=bool(sheet.text)),
        assets={path: file for path, file in folio.assets.items() if path in page},
        footnotes=folio.sources.footnotes(),
        command=folio.sources.command,
    )


def _around(
    draft: Draft, kind: PageKind, title: Markup, content: Content, headings: Sequence[Heading]
) -> SimpleNamespace:
    """A page's content and what stands around it, as `page.md.j2` prints them."""
    sheet, folio, topic = draft.sheet, draft.folio, draft.sheet.topic
    parts = list(walk(content))
    groups, rail = next((way(sheet, folio) for way in filling("way")), ({}, None))
    needs = folio.markup.union(["page", sheet.kind], *(part.needs for part in parts))
    if (groups or rail) and kind.keeps_progress:
        needs.add("way")
    if folio.sources.values or draft.links.used:
        needs.add("opening")
    # What a trace says is text: no expression, no Markdown.
    about = (label if sheet.about_is_recorded else folio.line)(sheet.about)
    return SimpleNamespace(
        sheet=sheet,
        folio=folio,
        kind=kind,
        title=title,
        heading=headings[0],
        description=textwrap.shorten(plain(about), DESCRIPTION_LENGTH, placeholder="…"),
        hides=_hides(sheet, headings),
        scripts=facts.scripts(needs),
        styles=facts.styles(needs),
        rail=rail,
        lessons=groups,
        topic=folio.in_link.line(topic.file.title) if topic else Markup(),
        has_waiting=any(
            isinstance(part, Waiting) or (isinstance(part, Fold) and part.after) for part in parts
        ),
        is_asking=any(part.ASKS for part in parts),
        former=[at for former in filling("former") for at in former(folio.book, sheet.path)],
        content=content,
        **_of_numbers(folio),
    )


def _of_numbers(folio: Folio) -> dict[str, object]:
    """What is said below a page of all numbers that it printed, by its name in the template."""
    origins, marks = frame.origins(folio), " ".join(folio.natures)
    values, natures = folio.sources.values, folio.ui["natures"]
    return {
        "has_times": any(value.unit.num_seconds for value in values),
        "machines": frame.machines(origins, folio.book),
        "origins": origins,
        "by_machine": frame.by_machine(origins),
        "surprises": frame.surprises(folio),
        "kinds": frozenset(word for value in values for word in (value.kind, value.nature)),
        # The words behind its numbers, each with its meaning.
        "natures": [(word, means) for word, means in natures.items() if word in marks],
        # For each number that the machine at hand has, too, whether it differs.
        "here": [str(one) != str(values[at]) for at, one in folio.sources.here.items()],
    }


def _kind_of(sheet: Sheet) -> tuple[Kind | None, PageKind]:
    """The folder that a page is of, none for one by hand; and what is said of pages like it."""
    return (not sheet.by_hand and page_kind(sheet.kind)) or (None, BY_HAND)


def _links(sheet: Sheet, folio: Folio) -> Links:
    """What links the words of a page to the glossary."""
    owner, kind = _kind_of(sheet)
    num = owner.take(kind.num_links)(sheet) if owner and kind.num_links else 0
    made = (links(folio, num) for links in filling("links") if kind.links_terms)
    return next(made, Links())


def _hides(sheet: Sheet, headings: Sequence[Heading]) -> list[str]:
    """The sidebars that a page does not show."""
    is_divided = sheet.has_toc or sum(part.is_listed for part in headings[1:]) > FEW
    has_contents = is_divided and (sheet.has_toc or sheet.mode or (sheet.topic and sheet.of))
    return ["navigation"] if has_contents else ["navigation", "toc"]
