"""The decision guide as its page shows it: symptoms, questions, and what helps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from generator.content.guide import LessonSection, Symptom
from generator.evidence.folio import Folio


def lesson_behind(
    lesson: LessonSection, anchors: Mapping[str, str], folio: Folio
) -> tuple[str, Markup]:
    """Where a question is explained, as an address and in words.

    Args:
        lesson: as the author named it.
        anchors: of the headings of the lesson.
        folio: the page.
    """
    anchor = anchors.get(lesson.section, "")
    topic, _, mode = lesson.page.partition("/")
    (title,) = (one.file.title for one in folio.book.topics if one.id == topic)
    words = Markup("{}: {}").format(folio.line(title), folio.ui["modes"][mode])
    return f"topics/{lesson.page}.html#{anchor}", words


def symptom(path: str, folio: Folio) -> Symptom:
    """The symptom of a page, by the page's path."""
    guide = folio.book.guide
    assert guide is not None
    return next(one for _, one in guide.symptoms if path == page_of(one))


def page_of(symptom: Symptom) -> str:
    """Where a symptom's page lies."""
    return f"guide/{symptom.id}.md"


def runs_behind(claims: Sequence[str], folio: Folio) -> tuple[str, ...]:
    """The runs that claims were judged on, each once."""
    found = tuple(dict.fromkeys(run for one in claims for run in folio.outcome(one).runs))
    folio.runs.update(found)
    return found
