"""The decision guide checked against the claims, techniques, symptoms and lessons that it names.

In: content/guide.yml, the evidence, and the pages of the lessons as printed. Out: located errors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from generator.content.documents import Document
from generator.content.errors import ContentError, nearest
from generator.content.guide import Edge, GuideFile
from generator.content.yaml_source import Path
from generator.evidence.evaluation import Evidence
from generator.evidence.filters import asked_of_claims
from generator.items import evidence_checks


def mistakes(evidence: Evidence, document: Document[Any]) -> Iterator[ContentError]:
    """Everything in the guide that does not fit, but for the headings of lessons."""
    guide: GuideFile = document.model
    for position, technique in enumerate(guide.techniques):
        yield from _unheld(evidence, document, ("techniques", position), technique.claims)
    for place, edge in guide.edges:
        yield from _unheld(evidence, document, place, edge.claims)
        yield from _as_facts(evidence, document, place, edge)


def headings(
    document: Document[GuideFile], anchors: Callable[[str], Collection[str]]
) -> Iterator[ContentError]:
    """Sections that their lesson does not have.

    Args:
        document: content/guide.yml.
        anchors: the headings of a lesson, `topic/mode`; none where it is not printed.
    """
    for at, edge in document.model.edges:
        known = anchors(edge.lesson.page)
        if known and edge.lesson.section not in known:
            message = f"{edge.lesson.page} has no section {edge.lesson.section!r}"
            near = nearest(edge.lesson.section, known)
            yield document.error((*at, "lesson", "section"), f"{message}{near}")


def _as_facts(
    evidence: Evidence, document: Document[GuideFile], at: Path, edge: Edge
) -> Iterator[ContentError]:
    """An answer that states an observation, which another machine may not make, as a fact."""
    asked = {claim for _, claim in asked_of_claims(edge.because)}
    for name in edge.claims:
        claim = evidence.book.claims.get(name)
        if claim and claim.kind == "observation" and name not in asked:
            instead = f"end it with {{{{ holds('{name}') }}}}, or let showed('{name}') say it"
            message = f"it states an observation as a fact; {instead}"
            yield document.error((*at, "because"), message)


def _unheld(
    evidence: Evidence, document: Document[GuideFile], at: Path, claims: Sequence[str]
) -> Iterator[ContentError]:
    """Claims that do not hold where the book was written."""
    for position, claim in enumerate(claims):
        problem = evidence_checks.unheld(evidence, claim)
        if problem:
            yield document.error((*at, "claims", position), problem)
