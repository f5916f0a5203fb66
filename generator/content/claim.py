"""Claims, retractions, misconceptions and references, as an author writes them."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from generator.content.words import Expression, Id, Line, Name, Prose, RunPath, Written

Verdict = Literal[
    "holds",
    "does_not_hold",
    "not_distinguishable",
    "too_few_samples",
    "does_not_apply",
    "no_evidence",
]
Relation = Literal["equals", "at_least", "at_most", "above", "below", "differs", "faster", "slower"]


class Tolerance(Written):
    """How far observed may lie from predicted; give one of the two."""

    relative: Annotated[float, Field(ge=0)] | None = None
    absolute: Annotated[float, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.relative is None) == (self.absolute is None):
            raise ValueError("give relative or absolute, one of the two")
        return self


class Domain(Written):
    """Where a law holds: each field lists the allowed values of the observed runs."""

    device: list[Literal["cpu", "cuda"]] | None = None
    backend: list[Literal["gloo", "nccl"]] | None = None
    because: Line | None = None  # why it does not apply elsewhere


class Falsifier(Written):
    """A change to one field of a trace that makes the claim false; the tests apply it.

    Give the new `value`, or `same_as`: the path whose value it takes, for what must differ.
    """

    field: Expression  # a plain path, as `python -m runners show` prints it
    value: int | float | str | list[float] | None = None
    same_as: Expression | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.value is None) == (self.same_as is None):
            raise ValueError("give either value or same_as")
        return self


class Showed(Written):
    """What a page says of an observation, by verdict on the machine it shows."""

    holds: Line
    does_not_hold: Line
    not_distinguishable: Line | None = None
    too_few_samples: Line | None = None


class Claim(Written):
    """A rule over traces.

    `equals` and the inequalities compare numbers (or words, for `equals` and `differs`);
    `faster` and `slower` compare two `timing.step` samples and may end undecided. `predicted`
    comes from settings and a formula or from another run, never from the observed field.
    """

    id: Id
    kind: Literal["law", "observation"]
    says: Line
    predicted: Expression
    relation: Relation
    observed: Expression
    tolerance: Tolerance | None = None
    formula: Line | None = None
    source: Id | None = None  # of references.yml
    domain: Domain | None = None
    falsified_by: Falsifier | None = None  # derived from the rule where it is not stated
    showed: Showed | None = None


class ClaimFile(Written):
    """content/claims/<experiment>.yml.

    `topics` are what its claims are about, beside the topics whose pages and questions name them.
    """

    claims: list[Claim]
    topics: list[Id] = []


class Retraction(Written):
    """One sentence that people read, the claim that tests it, and what is true instead.

    `claim` states what is *true*, or the sentence itself: the sentence stands confirmed where
    the claim's verdict is `confirmed_if`, and is retracted otherwise. Who says so is `source`, of
    references.yml, or in words `where`. `program` is a file of `content/retracted/`, short enough
    to be read at a glance, which a run of the experiment `repeats` executes.
    """

    id: Id
    said: Line
    where: Line | None = None
    source: Id | None = None
    claim: Id
    confirmed_if: Verdict | None = None  # null: the claim contradicts the sentence when it holds
    correction: Prose
    program: Name | None = None  # content/retracted/<program>.py

    @model_validator(mode="after")
    def _said_by_somebody(self) -> Self:
        if self.where is None and self.source is None:
            raise ValueError("say where it is said: source: (a reference) or where: (in words)")
        return self


class RetractionFile(Written):
    """content/retracted.yml."""

    retractions: list[Retraction]


class Misconception(Written):
    """A belief that distractors stand for, with the claim that refutes it."""

    id: Id
    belief: Line
    refuted_by: Id | None = None  # a claim
    source: Id | None = None  # a reference, where no run can show it yet


class MisconceptionFile(Written):
    """content/misconceptions.yml."""

    misconceptions: list[Misconception]


class Reference(Written):
    """Something cited. `value` and `unit` where a number is cited: `{{ cited['id'] }}`."""

    id: Id
    title: str
    where: str  # publisher, year
    url: str
    says: str  # what it says, in our words; exempt from the numeral rule, shown as cited
    value: float | int | None = None
    unit: Literal["bytes", "count", "share", "plain"] | None = None


class ReferenceFile(Written):
    """content/references.yml."""

    references: list[Reference]


__all__ = [
    "Claim", "ClaimFile", "Domain", "Falsifier", "Misconception", "MisconceptionFile",
    "Reference", "ReferenceFile", "Relation", "Retraction", "RetractionFile", "RunPath",
    "Showed", "Tolerance", "Verdict",
]  # fmt: skip
