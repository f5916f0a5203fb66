"""A calculator compared with runs: its formulas, their results there, and how far off they were.

In: a `Calculator` as an author wrote it, and the evidence. Out: for each output what the formula
says at the start values and on every run that it was checked on, each a Value with provenance.
What an author got wrong is found by `kinds/lessons/lesson_checks.py`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from proofbook.generator.content.cases import bind_expression
from proofbook.generator.content.claim import NumberTolerance
from proofbook.generator.kinds.calculators.words import Calculator, CalculatorOutput, FormulaCheck
from proofbook.generator.values import formula, units
from proofbook.generator.values.claim_formula import observed_run, off_by
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.expression import Function, compiled
from proofbook.generator.values.laws import closed_forms
from proofbook.generator.values.value import ExpressionError, Value, computed, constant, numeric


@dataclass(frozen=True)
class CheckOnRun:
    """A run that a formula is compared with: its inputs and the measurement, as expressions."""

    run: str
    given: Mapping[str, float | str]
    measured: str


@dataclass(frozen=True)
class Checked:
    """A formula on one run: what it says with that run's inputs, and what was measured."""

    run: str
    given: Mapping[str, Value]
    by_formula: Value
    measured: Value
    off: Value  # signed, as a share of the measurement; in their unit where that is nothing

    def is_beyond(self, within: NumberTolerance) -> bool:
        """Whether the formula was further off than it may be."""
        measured = numeric(self.measured)
        return abs(numeric(self.by_formula) - measured) > within.slack(measured)


@dataclass(frozen=True)
class Formula:
    """A formula that pages calculate with: `+ - * /`, `min`, `max`, laws, numbers and inputs."""

    written: str  # by its author
    tree: formula.Tree  # its laws written out

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs that it needs, in the order in which they stand."""
        return tuple(formula.names_of(self.tree))

    def value(self, inputs: Mapping[str, float]) -> float | None:
        """Its value, a float; None where it divides by zero or exceeds the range of floats."""
        try:
            number = compiled(self.written).evaluate(inputs, _functions())
        except ExpressionError:
            return None
        assert isinstance(number, int | float), number
        return float(number) if math.isfinite(number) else None

    @property
    def readable(self) -> str:
        """The formula for readers: as its author wrote it, unless that calls a law by its name."""
        calls_a_law = compiled(self.written).functions & closed_forms().keys()
        return formula.printed(self.tree) if calls_a_law else self.written

    @property
    def postfix(self) -> str:
        """The formula as the page's script reads it."""
        return " ".join(formula.postfix(self.tree))


def _functions() -> dict[str, Function]:
    return {**closed_forms(), "min": formula.least, "max": formula.most}


@lru_cache(maxsize=256)
def parsed(written: str) -> Formula:
    """A formula, parsed once; ExpressionError for any other text."""
    expression = compiled(written)
    inputs = {name: formula.Symbol(name) for name in expression.names}
    return Formula(written, expression.formula(inputs, _functions()))


def result(output: CalculatorOutput, given: Mapping[str, Value | None]) -> Value | None:
    """The `Value` of an output, given inputs by name; None if any is missing, or it divides by 0.

    None too where inputs come from two machines, which are only ever compared side by side.
    """
    own = parsed(output.formula)
    inputs = {name: value for name in own.names if (value := given.get(name))}
    machines = frozenset[str]().union(*(value.machines for value in inputs.values()))
    if len(inputs) < len(own.names) or len(machines) > 1:
        return None
    number = own.value({name: float(numeric(value)) for name, value in inputs.items()})
    if number is None:
        return None
    whole = int(number) if number.is_integer() and abs(number) < 2**53 else number
    read = tuple(value for value in inputs.values() if value.origin or value.inputs)
    tree = formula.filled(own.tree, {name: value.tree for name, value in inputs.items()})
    return computed(whole, units.BY_NAME[output.quantity], tree, read)


def check_on_run(
    check: FormulaCheck, output: CalculatorOutput, calculator: Calculator, evidence: Evidence
) -> CheckOnRun:
    """A `CheckOnRun`: run, inputs and measurement as expressions, by a law's claim or its own."""
    run, measured = check.run, check.measured
    if check.law is not None:
        claim = evidence.book.claims[check.law]
        run, measured = observed_run(claim, evidence), claim.observed
    assert run is not None
    assert measured is not None
    needed = parsed(output.formula).names
    read = {
        field.name: bind_expression(field.on_run, {"run": run})
        for field in calculator.inputs
        if field.on_run and field.name in needed
    }
    return CheckOnRun(run, {**read, **check.given}, measured)


def checks(output: CalculatorOutput, calculator: Calculator, evidence: Evidence) -> list[Checked]:
    """The formula on each of the runs that it is compared with and that this machine has."""
    against = (check_on_run(check, output, calculator, evidence) for check in output.checked_on)
    return [comparison for check in against if (comparison := checked(output, check, evidence))]


def checked(output: CalculatorOutput, check: CheckOnRun, evidence: Evidence) -> Checked | None:
    """A `Checked`: value by formula on a run, the measured, the error; None if any is missing."""
    given = {name: bound(written, evidence) for name, written in check.given.items()}
    measured, by_formula = evidence.value(check.measured), result(output, given)
    if measured is None or by_formula is None or len(by_formula.machines | measured.machines) > 1:
        return None
    by_formula = replace(by_formula, form=replace(by_formula.form, label=measured.form.label))
    known = {name: value for name, value in given.items() if value}
    off = off_by(by_formula, measured)
    if off is None:
        raise ExpressionError(f"the formula and {check.measured} are no numbers of one unit")
    return Checked(check.run, known, by_formula, measured, off)


def bound(written: float | str, evidence: Evidence) -> Value | None:
    """A bound of an input, or an input of a run: a plain number, or an expression."""
    return constant(written) if isinstance(written, int | float) else evidence.value(written)
