"""The lessons: for each mode, a lesson's file → its page."""

from collections.abc import Iterable, Iterator

from markupsafe import Markup

from generator.content.lesson import (
    LearnFile,
    WorkedFile,
)
from generator.pages.draft import Draft
from generator.pages.elements.element import Block, Element, Fold

Parts = Iterator[Element | Markup]
SEEN = "What the runs showed"


def reveal(summary: str, after: str, content: Iterable[Element | Markup], css: str = "") -> Fold:
    """A fold that the answer to a question opens."""
    return Fold(Markup(summary), list(content), f"pb-reveal{css}", after)


def learn(draft: Draft) -> Parts:
    """The first page of a topic."""
    lesson = draft.lesson(LearnFile)
    yield draft.lede(lesson.introduction)
    yield draft.heading(2, "The idea")
    yield Block([draft.prose(lesson.idea), *draft.figure(lesson.figure)])
    yield draft.heading(2, "Predict, then see")
    yield from draft.item(lesson.commit, "commit")
    yield reveal(SEEN, lesson.commit, _seen(lesson, draft), " pb-seen")
    yield draft.heading(2, "The smallest real program")
    yield Block([*_smallest_program(lesson, draft)])
    yield from draft.checks(lesson.checks)
    yield from draft.takeaway(lesson.takeaway)


def _seen(lesson: LearnFile, draft: Draft) -> Parts:
    if lesson.seen.title != SEEN:
        title = draft.folio.line(lesson.seen.title)
        yield draft.heading(3, title, css="pb-reveal-title", is_listed=False)
    yield from draft.section_body(lesson.seen)


def _smallest_program(lesson: LearnFile, draft: Draft) -> Parts:
    yield draft.program(lesson.program)
    yield draft.heading(3, "Line by line", is_listed=False)
    yield draft.notes(lesson.program)
    yield draft.heading(3, "What it printed", is_listed=False)
    yield draft.waiting(lesson.commit, "what it printed", _printed(lesson, draft))


def _printed(lesson: LearnFile, draft: Draft) -> Parts:
    yield draft.program(lesson.program).output
    yield draft.prose(lesson.program.output_says)


def worked(draft: Draft) -> Parts:
    """One case, term by term."""
    lesson = draft.lesson(WorkedFile)
    yield draft.lede(lesson.introduction)
    yield draft.heading(2, "Step by step")
    for number, step in enumerate(lesson.steps, 1):
        yield draft.heading(3, draft.folio.line(step.title), number)
        yield from draft.section_body(step)
    yield from draft.checks(lesson.checks)
    yield from draft.takeaway(lesson.takeaway)
