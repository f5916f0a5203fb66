"""The decision guide checked against the claims, techniques, symptoms and lessons that it names.

In: content/guide.yml, the evidence, and the pages of the lessons as printed. Out: located errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from generator.content.documents import Document
from generator.content.errors import ContentError, nearest
from generator.content.guide import GuideFile
from generator.items import evidence_checks

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence


def mistakes(evidence: Evidence, document: Document[Any]) -> Iterator[ContentError]:
    """Everything in the guide that does not fit, but for the headings of lessons."""
    guide: GuideFile = document.model
    yield from _repeated(document)
    yield from _backing(evidence, document)
    yield from _as_facts(evidence, document)
    yield from _ways(document)
    lessons = {f"{topic.id}/{mode}" for topic in evidence.book.topics for mode in topic.lessons}
    for at, edge in guide.edges:
        if edge.lesson.page not in lessons:
            message = f"no lesson {edge.lesson.page!r}{nearest(edge.lesson.page, lessons)}"
            yield document.error((*at, "lesson", "page"), message)


def headings(
    document: Document[GuideFile], found: Mapping[str, Mapping[str, str]]
) -> Iterator[ContentError]:
    """Sections that their lesson does not have.

    Args:
        document: content/guide.yml.
        found: the anchor of each heading, by lesson as `topic/mode`; those that were printed.
    """
    for at, edge in document.model.edges:
        known = found.get(edge.lesson.page)
        if known is not None and edge.lesson.section not in known:
            message = f"{edge.lesson.page} has no section {edge.lesson.section!r}"
            near = nearest(edge.lesson.section, known)
            yield document.error((*at, "lesson", "section"), f"{message}{near}")


def _repeated(document: Document[GuideFile]) -> Iterator[ContentError]:
    guide = document.model
    places = [
        *((at, one.id, "symptom") for at, one in guide.symptoms),
        *((("techniques", i), one.id, "technique") for i, one in enumerate(guide.techniques)),
    ]
    counted = Counter(name for _, name, _ in places)
    for at, name, word in places:
        if counted[name] > 1:
            yield document.error((*at, "id"), f"duplicate {word} id {name!r}")


def _as_facts(evidence: Evidence, document: Document[GuideFile]) -> Iterator[ContentError]:
    """Answers that state an observation, which another machine may not make, as a fact."""
    for at, edge in document.model.edges:
        for name in edge.claims:
            claim = evidence.book.claims.get(name)
            if claim and claim.kind == "observation" and f"('{name}')" not in edge.because:
                instead = f"end it with {{{{ holds('{name}') }}}}, or let showed('{name}') say it"
                message = f"it states an observation as a fact; {instead}"
                yield document.error((*at, "because"), message)


def _backing(evidence: Evidence, document: Document[GuideFile]) -> Iterator[ContentError]:
    """Claims behind edges and costs that do not hold where the book was written."""
    guide = document.model
    parts = [
        *((at, edge.claims) for at, edge in guide.edges),
        *((("techniques", i), one.claims) for i, one in enumerate(guide.techniques)),
    ]
    for at, claims in parts:
        for position, claim in enumerate(claims):
            problem = evidence_checks.unheld(evidence, claim)
            if problem:
                yield document.error((*at, "claims", position), problem)


def _ways(document: Document[GuideFile]) -> Iterator[ContentError]:
    """Edges that lead nowhere."""
    guide = document.model
    techniques = {one.id for one in guide.techniques}
    symptoms = {one.id for _, one in guide.symptoms}
    for at, edge in guide.edges:
        for key, known, word in (
            ("use", techniques, "technique"), ("continue_at", symptoms, "symptom"),
        ):  # fmt: skip
            name = getattr(edge, key)
            if name and name not in known:
                yield document.error((*at, key), f"no {word} {name!r}{nearest(name, known)}")
