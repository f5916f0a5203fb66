"""What lessons and other pages are made of: figures, questions, sections, and how a lesson ends."""

from collections.abc import Iterable, Iterator, Sequence

from markupsafe import Markup

from proofbook.generator.content.exhibit import Figure
from proofbook.generator.content.lesson import Backed, Section
from proofbook.generator.kinds.figures import figures
from proofbook.generator.kinds.figures.figures import DrawnFigure
from proofbook.generator.kinds.figures.play import states as play_states
from proofbook.generator.kinds.questions import elements as questions
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements.element import Block, Element


def drawn(draft: Draft, figure: Figure) -> DrawnFigure:
    """A figure, operated if it is a play."""
    return figures.figure(figures.draw(figure, draft.folio))


def first_state(draft: Draft, figure: Figure) -> DrawnFigure:
    """A figure that nobody operates, without the numbers behind it."""
    first = figures.draw(play_states.first_alone(figure, draft.folio), draft.folio)
    return figures.drawn_once(first, with_numbers=False)


def figure(draft: Draft, name: str | None) -> list[Element]:
    """The lesson's figure of an id, if there is one."""
    return [drawn(draft, draft.topic.figures[f"{draft.sheet.mode}#{name}"])] if name else []


def figure_to_try(draft: Draft, name: str | None) -> str:
    """Words that name a figure that readers operate, for what waits; nothing for others."""
    named = draft.topic.figures.get(f"{draft.sheet.mode}#{name}")
    if named is None or not named.play:
        return ""
    return f", a figure to try: “{draft.folio.line(named.title)}”"


def item(draft: Draft, name: str | None, asked_as: str) -> list[Element]:
    """The topic's question of an id, if there is one; its heading is of level 2 or 3."""
    level = min(draft._above + 1, 3)
    named = [draft.topic.items[name]] if name else []
    return [questions.question(quiz_item, draft.folio, asked_as, level) for quiz_item in named]


def self_checks(
    draft: Draft, names: Sequence[str], title: str = "Check yourself"
) -> Iterator[Element]:
    """The questions at the end of a lesson, below a heading, if there are any."""
    if names:
        yield draft.heading(2, title)
    for name in names:
        yield from item(draft, name, "question")


def end(draft: Draft, checks: Sequence[str], takeaway: str) -> Iterator[Element]:
    """The questions at the end of a lesson, and what to keep of it."""
    yield from self_checks(draft, checks)
    yield draft.heading(2, "Takeaway")
    yield draft.insight(takeaway)


def sections(draft: Draft, written: Iterable[Section | None], level: int, title: str = "",
    after: str | None = None,
) -> Iterator[Element]:  # fmt: skip
    """Those sections that there are, below a heading of their own if a title is given.

    With `after`, their texts wait for the answer to that question.
    """
    for number, section in enumerate(filter(None, written)):
        if title and not number:
            yield draft.heading(2, title)
        yield draft.heading(level, draft.folio.line(section.title))
        what = f"“{draft.folio.line(section.title)}”{figure_to_try(draft, section.figure)}"
        yield draft.waiting(after, what, section_body(draft, section))


def section_body(draft: Draft, section: Backed) -> Iterator[Element]:
    """What a section of any kind holds; where it asks, the rest waits for the answer."""
    opening, commit, table, program = (
        getattr(section, key, None) for key in ("opening", "commit", "table", "program")
    )
    if opening:
        yield Block([draft.line(opening)], tag="p")
    yield from item(draft, commit, "before")
    drawn_as = figure_to_try(draft, section.figure) or ", a figure" * bool(section.figure)
    what = f"the explanation{drawn_as}{', a table' * bool(table)}"
    what += ", a program with its output" * bool(program)
    told: list[Element | Markup] = [draft.prose(section.text), *figure(draft, section.figure)]
    if table:
        told += draft.table(table, draft.folio.line(table.first_column or "What"))
    if program:
        told += draft.explained(program)
    told += draft.backing(section.claims, section.sources)
    yield draft.waiting(commit, what, told)
