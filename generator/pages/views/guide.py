"""The decision guide as its page shows it: symptoms, questions, and what helps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from generator.content.guide import Edge, LessonSection, Symptom, Technique
from generator.evidence.folio import Folio

Anchors = Mapping[str, Mapping[str, str]]  # of each heading, by lesson as `topic/mode`


@dataclass(frozen=True)
class EdgeOnPage:
    """A question with where its *yes* leads, and the runs and the lesson behind it."""

    ask: Markup
    because: Markup
    claims: Sequence[str]
    runs: tuple[str, ...]
    lesson: str  # a link
    lesson_words: Markup
    section: str
    technique: Technique | None
    edges: list[EdgeOnPage]
    continues: Symptom | None


def edges(written: Sequence[Edge], anchors: Anchors, folio: Folio) -> list[EdgeOnPage]:
    """Edges in the order of the file.

    Args:
        written: as the author wrote them.
        anchors: of the headings of the lessons.
        folio: the page.
    """
    guide = folio.book.guide
    assert guide is not None
    techniques = {one.id: one for one in guide.techniques}
    symptoms = {one.id: one for _, one in guide.symptoms}
    return [
        EdgeOnPage(
            ask=folio.line(one.ask),
            because=folio.line(one.because),
            claims=one.claims,
            runs=runs_behind(one.claims[0], folio),
            lesson=_place(one.lesson, anchors),
            lesson_words=_words(one.lesson, folio),
            section=one.lesson.section,
            technique=techniques.get(one.use or ""),
            edges=edges(one.edges, anchors, folio),
            continues=symptoms.get(one.continue_at or ""),
        )
        for one in written
    ]


def _words(lesson: LessonSection, folio: Folio) -> Markup:
    topic, _, mode = lesson.page.partition("/")
    (title,) = (one.file.title for one in folio.book.topics if one.id == topic)
    return Markup("{}: {}").format(folio.line(title), folio.ui["modes"][mode])


def helps_with(technique: Technique, folio: Folio) -> list[Symptom]:
    """The symptoms from which questions lead to a technique, in the order of the guide."""
    guide = folio.book.guide
    assert guide is not None
    uses = {path[:4] for path, edge in guide.edges if edge.use == technique.id}
    return [one for path, one in guide.symptoms if path in uses]


def runs_behind(claim: str, folio: Folio) -> tuple[str, ...]:
    """The runs that a claim was judged on, each once."""
    found = tuple(dict.fromkeys(folio.outcome(claim).runs))
    folio.runs.update(found)
    return found


def _place(lesson: LessonSection, anchors: Anchors) -> str:
    anchor = anchors.get(lesson.page, {}).get(lesson.section, "")
    return f"topics/{lesson.page}.html#{anchor}"
