"""Deep: its first page, with an overview and entries of the others, and the pages of its chain."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup, escape

from generator.content.chain import HOOD, DeepPage, chain
from generator.content.lesson import BuildStep, DeepFile, Myth, Pitfall
from generator.pages.draft import Draft
from generator.pages.elements import programs
from generator.pages.elements.element import Aside, Block, Element, Fold
from generator.pages.elements.programs import Difference, ListedProgram, WholeProgram

Parts = Iterator[Element | Markup]


class ChainedPage(NamedTuple):
    """A page of the chain as Deep's first page lists it."""

    page: DeepPage
    href: str
    title: Markup
    step: Markup  # for whom a step is, and what it adds
    sections: Sequence[Markup]  # their titles


@dataclass(frozen=True)
class ChainedPages(Element):
    """The pages of the chain, with an anchor for all that each of them holds."""

    IS_FOUND = False
    pages: Sequence[ChainedPage]


class Side(NamedTuple):
    """What a program printed."""

    title: Markup
    text: str
    words: Markup  # how to read it


@dataclass(frozen=True)
class Sides(Element):
    """A wrong program and its correction beside each other."""

    IS_FOUND = False
    sides: Sequence[Side]


def deep(draft: Draft) -> Parts:
    """The first page of Deep."""
    lesson = draft.lesson(DeepFile)
    overview, model = lesson.overview, lesson.mental_model
    yield draft.lede(lesson.introduction)
    yield draft.heading(2, "Overview")
    texts = overview.what, overview.why_it_matters, overview.where_it_fits
    ways = ("Before this", overview.before), ("After this", overview.after)
    words = [draft.prose(text) for text in texts]
    links = [
        Aside(escape(f"{title}: ") + Markup(" · ").join(map(draft.line, places)))
        for title, places in ways
        if places
    ]
    yield Block([*words, *links])
    yield draft.heading(2, "Mental model")
    insight = draft.insight(model.core_idea)
    analogy = [draft.prose(model.analogy)] if model.analogy else []
    yield Block([insight, *analogy, *draft.figure(model.figure)])
    yield draft.heading(2, "Build-up")
    yield ChainedPages([_chained(page, draft) for page in chain(lesson)])
    yield draft.heading(2, "Key takeaways")
    yield draft.lines(lesson.takeaways, "ol")


def _chained(page: DeepPage, draft: Draft) -> ChainedPage:
    folio, step = draft.folio.in_link, page.step
    title, adds = folio.line(page.title), Markup()
    if step:
        level = Markup('<span class="pb-level">{}</span>').format(step.level)
        adds = level + "\n" + draft.prose(step.concept)
    sections = [folio.line(section) for _, section, _ in page.places]
    return ChainedPage(page, f"{draft.sheet.mode}-{page.id}.html", title, adds, sections)


def chained(draft: Draft) -> Parts:
    """A page of the chain: a step of the build-up, sections, myths or pitfalls."""
    page, lesson = draft.sheet.part, draft.lesson(DeepFile)
    assert page
    if page.opening:
        yield draft.lede(page.opening)
    if page.step:
        yield from _step(page.step, draft)
    elif page.kind == "myths":
        for myth in lesson.myths:
            yield from _myth(myth, draft)
    elif page.kind == "pitfalls":
        is_numbered = len(lesson.pitfalls) > 1
        for number, pitfall in enumerate(lesson.pitfalls, 1):
            title = draft.folio.line(pitfall.title)
            yield draft.heading(2, title, number if is_numbered else None)
            yield from _pitfall(pitfall, draft)
    else:
        yield from _sections(page, lesson, draft)


def _step(step: BuildStep, draft: Draft) -> Parts:
    yield Block([draft.prose(step.text), *draft.figure(step.figure)])
    yield from draft.item(step.commit, "before")
    what = "the result" + ", the insight" * bool(step.insight)
    yield draft.waiting(step.commit, what, _result(step, draft))


def _result(step: BuildStep, draft: Draft) -> Parts:
    yield draft.heading(2, "Result")
    yield draft.prose(step.result)
    if step.insight:
        yield draft.insight(step.insight)
    yield from draft.backing(step.claims, step.sources)


def _myth(myth: Myth, draft: Draft) -> Parts:
    yield draft.heading(2, Markup("“{}”").format(draft.folio.line(myth.belief)))
    yield from draft.item(myth.commit, "commit")
    texts = {
        "Result of a run": myth.showed,
        "The mechanism": myth.mechanism,
        "Why it matters": myth.why_it_matters,
    }
    row = Markup("<dt>{}</dt><dd>{}</dd>")
    told = Block(
        [row.format(term, draft.prose(text)) for term, text in texts.items()], "pb-parts", "dl"
    )
    summary, after = Markup("The result, and why"), myth.commit or ""
    content = [told, *draft.verdicts(myth.claims)]
    yield Fold(summary, content, after=after, is_found=not after)


def _pitfall(pitfall: Pitfall, draft: Draft) -> Parts:
    difference = programs.difference(pitfall.wrong, pitfall.right, draft.folio)
    yield from draft.item(pitfall.commit, "commit")
    what = "what goes wrong, how to fix it, the root cause"
    yield draft.waiting(pitfall.commit, what, _cause(pitfall, difference, draft))


def _cause(pitfall: Pitfall, difference: Difference, draft: Draft) -> Parts:
    """Both programs of a pitfall, and the cause; its question has shown the wrong one."""
    if not pitfall.commit:
        yield difference
    wrong, right = difference.wrong, difference.right
    yield Sides(
        [
            _side("Wrong", wrong, pitfall.wrong_says, draft),
            _side("Right", right, pitfall.right_says, draft),
        ]
    )
    yield draft.insight(f"*Cause:* {pitfall.root_cause}")
    is_printed = not (pitfall.commit or difference.lines)
    listed = [right] if pitfall.commit else [wrong, right]
    whole = [WholeProgram(listing, is_printed=is_printed) for listing in listed if listing.file]
    yield Block(whole, "pb-listing")


def _side(word: str, program: ListedProgram, says: str, draft: Draft) -> Side:
    title = Markup('<span class="pb-{}">{}</span>').format(word.lower(), word)
    if program.output.run:
        title += Markup(" · {}<br>\n{}").format(program.output.status, program.output.link)
    return Side(title, program.output.text, draft.prose(says))


def _sections(page: DeepPage, lesson: DeepFile, draft: Draft) -> Parts:
    if page.title == HOOD:
        yield from draft.section_body(lesson.under_the_hood)
    is_divided = len(page.groups) > 1 or page.title == HOOD
    for title, sections in page.groups.items():
        yield from draft.sections(sections, 2 + is_divided, title if is_divided else "")
