"""Claims, misconceptions and references, as an author writes them."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from proofbook.generator.content import words

Dtype = Literal["float64", "float32", "bfloat16", "float16"]
# The distance from 1 to the next larger number; rounding an exact result changes it by at most half
# of that, as a share of the result (IEEE 754).
EPSILONS: dict[str, float] = {
    "float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7,
}  # fmt: skip
Verdict = Literal["holds", "does_not_hold", "not_distinguishable", "does_not_apply", "no_evidence"]
CitedUnit = Literal[
    "bytes", "seconds", "FLOP", "bytes/s", "FLOP/s", "bits/byte", "count", "share", "ratio", "plain"
]
Relation = Literal["equals", "at_least", "at_most", "above", "below", "differs", "faster", "slower"]


class NumberTolerance(words.Written):
    """How far a number may lie from another one; give one of the first three."""

    ONE_OF = (("relative", "absolute", "epsilons"),)
    relative: Annotated[float, Field(ge=0)] | None = None
    """a share of the other number."""
    absolute: Annotated[float, Field(ge=0)] | None = None
    """an amount, in its unit."""
    epsilons: Annotated[int, Field(ge=1)] | None = None
    """for rounding: a share of it, in epsilons of `dtype`."""
    dtype: Dtype | None = None
    """the format in which the compared numbers were calculated."""
    because: words.Line | None = None
    """why a law is as far off as that; wanted above a tenth."""

    @model_validator(mode="after")
    def _epsilons_of_a_dtype(self) -> Self:
        if (self.epsilons is None) != (self.dtype is None):
            raise ValueError("epsilons are those of a dtype; give both")
        return self

    @property
    def share(self) -> float | None:
        """The tolerance as a share of the other number; None where it is an amount."""
        if self.epsilons is not None and self.dtype is not None:
            return self.epsilons * EPSILONS[self.dtype]
        return self.relative

    def slack(self, around: float) -> float:
        """The tolerated distance from a number, in its unit."""
        return abs(around) * (self.share or 0) + (self.absolute or 0)


class Regime(words.Written):
    """What a trace does not record of the conditions under which a claim was measured.

    A file of claims states it once for its experiment; a claim overrides single fields. Device,
    backend, ranks and cores are read off the runs, and so are dtype and optimizer where the run's
    settings have them.
    """

    optimizer: Literal["SGD", "Adam", "none"] | None = None
    """that trained; `none` where no parameter is updated."""
    dtype: Dtype | None = None
    """of the arithmetic."""
    fixed: words.Line | None = None
    """what stays the same while ranks, sizes or strategies differ."""


class Domain(words.Written):
    """Where a law holds: allowed values of the observed runs, and why it holds nowhere else."""

    device: list[Literal["cpu", "cuda"]] | None = None
    backend: list[Literal["gloo", "nccl"]] | None = None
    because: words.Line | None = None


class ShowedSentences(words.Written):
    """What a page says of an observation, by verdict on the machine it shows."""

    holds: words.Line
    does_not_hold: words.Line
    not_distinguishable: words.Line | None = None


SEVERAL = BeforeValidator(words.as_list)  # one may stand without its list


class ClaimCase(words.Written):
    """A run that a claim is about."""

    run: words.RunPath
    """what `run` stands for in the claim; a run's name alone stands for `{run: name}`."""
    other: words.RunPath | None = None
    """what `other` stands for, where two runs take part."""
    called: str | None = None
    """what `{{ called }}` prints in the claim's texts."""
    says: words.Line | None = None
    """the sentence for this run, where the claim's own does not fit."""
    source: words.SourceId | None = None
    """the same for the reference."""


class Claim(words.Written):
    """A rule over traces.

    `equals` and the inequalities compare numbers (or words, for `equals` and `differs`);
    `faster` and `slower` compare two `timing.step` samples and may end undecided. `predicted`
    comes from settings and a formula or from another run, never from the observed field.

    A side may be a list, such as `run.ranks | each('num_parameters')`. The relation must then hold
    for each of its elements: two lists are compared element by element, and a single value with
    each element of the other side.

    With `for`, the rule is judged once a run, and `run` stands for it in expressions and texts; the
    verdict's id is `law@experiment.run`. In its texts, `{{ predicted }}` and `{{ observed }}` are
    the claim's own.
    """

    id: words.Id
    cases: Annotated[
        list[ClaimCase],
        BeforeValidator(
            words.runs_as_cases,
            json_schema_input_type=list[words.RunPath | ClaimCase] | words.RunPath | ClaimCase,
        ),
        Field(alias="for", min_length=1),
    ] = []
    """the runs that the rule is judged on, one by one."""
    kind: Literal["law", "observation"] = "law"
    """a law fails the build where it does not hold; an observation may differ by machine."""
    says: words.Line
    """the rule in a sentence."""
    predicted: words.Expression
    """an expression over settings, a formula, or another run."""
    relation: Relation = "equals"
    """of what is observed to what is predicted: equals (the default), at_least, at_most, above,
    below, differs, faster or slower."""
    observed: words.Expression
    """an expression over what a run measured."""
    tolerance: NumberTolerance | None = None
    """how far the two may be apart."""
    formula: words.Line | None = None
    """what pages print of the prediction, in words or symbols."""
    source: words.SourceId | None = None
    """the id of a reference that states the rule."""
    domain: Domain | Literal["everywhere"] | None = None
    """where the rule holds; everywhere, by arithmetic alone."""
    showed: ShowedSentences | None = None
    """what pages say of an observation, by verdict."""
    regime: Regime = Regime()
    """what overrides the regime of the file."""

    @model_validator(mode="after")
    def _on_each_run_once(self) -> Self:
        if len({case.run for case in self.cases}) < len(self.cases):
            raise ValueError("for: names a run twice")
        return self

    @property
    def run(self) -> str | None:
        """The run that the claim is about; None without `for:`."""
        return self.cases[0].run if self.cases else None

    def sentence_for(self, verdict: Verdict) -> str:
        """The sentence of `showed:` for a verdict; empty where its author wrote none."""
        return getattr(self.showed, verdict, None) or ""


class ClaimFile(words.Written):
    """content/claims/<experiment>.yml."""

    regime: Regime = Regime()
    """what the traces do not record of the conditions of all its claims."""
    claims: list[Claim]
    """rules over its traces."""


class Misconception(words.Written):
    """A belief that distractors stand for, with the claim that refutes it."""

    id: words.Id
    belief: words.Line
    refuted_by: words.ClaimId


class MisconceptionFile(words.Written):
    """content/misconceptions.yml."""

    misconceptions: list[Misconception]


class Reference(words.Written):
    """Something cited. `value` and `unit` where a number is cited: `{{ cited['id'] }}`."""

    id: words.Id
    title: str
    where: str
    """publisher and year, or the file's project."""
    url: Annotated[str, Field(pattern="^https://")]
    says: str
    """what it says, in our words; numbers may stand in it."""
    value: float | int | None = None
    unit: CitedUnit | None = None


class Constant(words.Written):
    """A number that expressions calculate with by its name, `given['id']`."""

    value: float | int
    unit: CitedUnit = "ratio"
    means: str
    """what it is; numbers may stand in it."""
    source: str
    """why it is so large: what defines it, or who chose it, and for what."""


class ReferenceFile(words.Written):
    """content/references.yml."""

    references: list[Reference]
    given: dict[words.Id, Constant] = {}
    """numbers that no run measured and nobody published, such as the end of a scale."""
