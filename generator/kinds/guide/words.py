"""content/guide.yml: from a symptom, by questions about a run, to a technique.

Symptoms are the starting points. An edge asks what a reader can see in a run; a *yes* leads to a
technique, to further edges, or to another symptom. Claims back every edge, and a section of a
lesson explains it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from proofbook.generator.content import words
from proofbook.generator.content.yaml_source import Path


class Edge(words.Written):
    """A question about a run, and where a *yes* leads: give one of the last three."""

    ONE_OF = (("use", "edges", "continue_at"),)
    ask: words.Line
    """what a reader looks up in the run."""
    because: words.Line
    """why a *yes* leads there."""
    claims: Annotated[list[words.ClaimId], Field(min_length=1)]
    """what backs it; the build fails when one of them stops holding."""
    lesson: words.LessonSection
    """the section that explains it."""
    use: words.TechniqueId | None = None
    """a technique."""
    edges: list[Edge] = []
    """further questions."""
    continue_at: words.SymptomId | None = None
    """another symptom, or a question of it, which goes on from here."""


class Symptom(words.Written):
    """What fails. Readers take its questions in order, up to the first answered with yes."""

    id: words.Id
    title: words.Line
    tell: words.Prose
    """how to recognize it."""
    read: words.Prose | None = None
    """what to run and read before the questions."""
    causes: list[words.Line] = []
    """what to rule out first, since no technique helps against it, the most frequent first; those
    after the fifth stand below the questions. No run shows these."""
    edges: Annotated[list[Edge], Field(min_length=1)]


class SymptomGroup(words.Written):
    """Symptoms of one kind."""

    title: words.Line
    introduction: words.Prose | None = None
    symptoms: Annotated[list[Symptom], Field(min_length=1)]


class Technique(words.Written):
    """What helps, and what it costs."""

    id: words.Id
    name: words.Line
    saved: words.Line | None = None
    """what it saved in a run of ours, where a run shows it."""
    costs: words.Line
    claims: list[words.ClaimId] = []
    """what backs the cost."""
    planned: words.RunPath | None = None
    """the simulation on the Plan pages that shows it; no other layout may dominate it."""
    fits: bool = False
    """readers who need it have memory free, so that needing less of it is no gain."""


class GuideFile(words.Written):
    """content/guide.yml."""

    title: words.Line
    about: words.Line
    introduction: words.Prose
    otherwise: words.Prose
    """what to collect, and where to ask, if no question of a symptom leads on."""
    groups: Annotated[list[SymptomGroup], Field(min_length=1)]
    techniques_say: words.Prose
    techniques: Annotated[list[Technique], Field(min_length=1)]

    @property
    def symptoms(self) -> Iterator[tuple[Path, Symptom]]:
        """Every symptom, with its place in the file."""
        for number, group in enumerate(self.groups):
            for position, symptom in enumerate(group.symptoms):
                yield ("groups", number, "symptoms", position), symptom

    @property
    def techniques_by_group(self) -> list[tuple[words.Line, list[Technique]]]:
        """[(title, `Technique`s)] of the groups: those it leads to that no earlier group does.

        The first group also has the techniques that no group leads to.
        """
        first = {edge.use: at[1] for at, edge in reversed([*self.edges])}
        return [
            (group.title, [own for own in self.techniques if first.get(own.id, 0) == number])
            for number, group in enumerate(self.groups)
        ]

    @property
    def edges(self) -> Iterator[tuple[Path, Edge]]:
        """Every edge, with its place in the file."""
        for at, symptom in self.symptoms:
            yield from edges_below(at, symptom.edges)


def edges_below(at: Path, edges: list[Edge]) -> Iterator[tuple[Path, Edge]]:
    """Edges and the edges that they lead to, each with its place."""
    for position, edge in enumerate(edges):
        place: Path = (*at, "edges", position)
        yield place, edge
        yield from edges_below(place, edge.edges)
