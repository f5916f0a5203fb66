"""Deep: the whole subject in depth, from the mental model to production."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from generator.content.exhibit import Figure, Listing
from generator.content.modes.section import Section
from generator.content.words import ClaimId, Id, Line, Naming, Prose, Written

Level = Literal["Foundation", "Intermediate", "Advanced", "Expert"]


class BuildStep(Naming):
    """One step of a build-up."""

    level: Level
    title: Line
    commit: Id | None = None  # an item of quiz.yml: "before reading on, commit to your answer"
    concept: Prose
    explanation: Prose
    result: Prose
    insight: Prose
    figure: Id | None = None
    claims: list[ClaimId] = []
    sources: list[Id] = []


class Myth(Written):
    """Commit, then belief, what a run showed, the mechanism, why it matters."""

    question: Id  # an item of quiz.yml that the belief gets wrong
    belief: Line
    showed: Prose
    mechanism: Prose
    why_it_matters: Prose
    claims: list[ClaimId] = []
    sources: list[Id] = []


class Pitfall(Written):
    """A mistake and its fix, both executed; with a `question`, readers look for the fault first.

    Such an item is a `faulty_line` over the same two programs, and shows both of them itself.
    """

    title: Line
    question: Id | None = None
    wrong: Listing
    wrong_says: Prose
    right: Listing
    right_says: Prose
    root_cause: Prose


class Connection(Written):
    """Another field that the idea connects to."""

    title: Line
    text: Prose


class Overview(Written):
    """What the subject is, why it matters, what stands before and after it."""

    what: Prose
    why_it_matters: Prose
    where_it_fits: Prose
    before: list[Line]
    after: list[Line]


class MentalModel(Written):
    """The one picture to keep."""

    core_idea: Prose
    analogy: Prose
    figure: Id


class UnderTheHood(Written):
    """What happens inside one step."""

    text: Prose
    figure: Id
    sources: list[Id] = []
    claims: list[ClaimId] = []


class DeepFile(Naming):
    """content/topics/<topic>/deep.yml."""

    title: Line
    introduction: Prose
    overview: Overview
    mental_model: MentalModel
    build_up: Annotated[list[BuildStep], Field(min_length=3)]
    under_the_hood: UnderTheHood
    why_designed_this_way: Section
    myths: Annotated[list[Myth], Field(min_length=1)]
    expert_zone: list[Section]
    when_not_to_use: Section
    production_patterns: list[Section]
    connections: list[Connection]
    pitfalls: list[Pitfall]
    takeaways: list[Line]
    figures: list[Figure] = []
