"""A calculator of Cost: what readers set, and formulas that are compared with runs."""

import re
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from proofbook.generator.content import words
from proofbook.generator.content.claim import NumberTolerance

Quantity = Literal["count", "bytes", "seconds", "bytes/s", "FLOP/s", "share", "plain"]


class CalculatorInput(words.Written):
    """A number that a reader sets, between two bounds; a bound may be a plain number."""

    name: words.Name
    """what formulas call it."""
    label: words.Line
    quantity: Quantity
    unit: words.Line | None = None
    """what a count counts, beside its field: `ranks`."""
    at_most: words.Formula | None = None
    """what the other inputs allow, a formula over them: `parameters`."""
    start: words.Expression
    """an expression: its value when the page opens."""
    low: int | float | words.Expression
    """the bounds of the field: expressions, or plain numbers."""
    high: int | float | words.Expression
    """the bounds of the field: expressions, or plain numbers."""
    on_run: words.PerRun | None = None
    """what it is on a run that formulas are compared with: `run.model.num_parameters`."""

    @property
    def called(self) -> str:
        """What formulas and messages call it: the beginning of its label."""
        return re.split(r"[,:]| \(", self.label)[0]


def _by_law(written: object) -> object:
    """A law's name stands for the check against what that law observes."""
    return {"law": written} if isinstance(written, str) else written


class FormulaCheck(words.Written):
    """A run that a formula is compared with, and what was measured there."""

    ONE_OF = (("law", "run"), ("law", "measured"))
    law: words.ClaimId | None = None
    """the claim whose run and observation these are; its name may stand alone."""
    run: words.RunPath | None = None
    """instead of it, where no claim observes this."""
    measured: words.Expression | None = None
    """instead of it, where no claim observes this."""
    given: dict[words.Name, int | float | words.Expression] = {}
    """inputs on this run that are not what `on_run` says. One that the trace does not hold, such as
    the bytes of a number, may be a plain number."""


class CalculatorOutput(words.Written):
    """A number worked out of the inputs by `+ - * /`, brackets, `min` and `max`."""

    name: words.Name
    label: words.Line
    quantity: Quantity
    formula: words.Formula
    checked_on: Annotated[
        list[
            Annotated[
                FormulaCheck,
                BeforeValidator(_by_law, json_schema_input_type=words.ClaimId | FormulaCheck),
            ]
        ],
        Field(min_length=1),
    ]
    within: NumberTolerance


class Calculator(words.Written):
    """A small calculator whose formulas are compared with runs at every build."""

    introduction: words.Prose
    """what it works out, in a few lines, so that fields and results follow at once."""
    afterword: words.Prose | None = None
    """below the fields, what to enter and where the formulas apply."""
    inputs: Annotated[list[CalculatorInput], Field(min_length=1, max_length=7)]
    outputs: Annotated[list[CalculatorOutput], Field(min_length=1, max_length=6)]

    @model_validator(mode="after")
    def _named_once(self) -> Self:
        names = [*(part.name for part in self.inputs), *(part.name for part in self.outputs)]
        if len(set(names)) < len(names):
            raise ValueError("two inputs or outputs have the same name")
        return self
