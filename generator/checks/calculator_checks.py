"""What an author got wrong in a calculator: names, quantities, formulas, and how far off these are.

In: the document of a lesson on cost, and the evidence. Out: located errors. A formula that is
further off than its author allows is one, where the book was written; on other machines the page
says how far off it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from generator.content.cost import CalculatorInput, CalculatorOutput, CostFile, Quantity
from generator.content.documents import Document
from generator.content.errors import ContentError, nearest
from generator.content.yaml_source import Path
from generator.evidence.calculator import UNITS, CheckOnRun, bound, checked, on_run, parsed
from generator.evidence.evaluation import Evidence
from generator.evidence.value import ExpressionError, Value, numeric


def mistakes(evidence: Evidence, document: Document[CostFile]) -> Iterator[ContentError]:
    """What is wrong with the calculator of a lesson on cost, each error at its place."""
    calculator = document.model.calculator
    inputs = {one.name: one for one in calculator.inputs}
    for position, one in enumerate(calculator.inputs):
        at: Path = ("calculator", "inputs", position)
        yield from _of_input(evidence, document, at, one)
        if one.at_most is not None:
            others = inputs.keys() - {one.name}
            yield from _unknown(document, (*at, "at_most"), one.at_most, others)
    for position, output in enumerate(calculator.outputs):
        at = ("calculator", "outputs", position)
        lost = list(_unknown(document, (*at, "formula"), output.formula, inputs))
        yield from lost
        if lost:
            continue
        for number, written in enumerate(output.checked_on):
            if written.law is None or written.law in evidence.book.claims:
                check = on_run(written, output, calculator, evidence)
                place = (*at, "checked_on", number)
                faults = list(_of_check(evidence, document, place, output, check, inputs))
                yield from faults or _too_far(evidence, document, place, output, check)


def _unknown(
    document: Document[Any], path: Path, formula: str, known: Collection[str]
) -> Iterator[ContentError]:
    """A formula that cannot be read, or names that are no inputs."""
    try:
        names = parsed(formula).names
    except ExpressionError as error:
        yield document.error(path, str(error), offset=error.offset or 0)
        return
    for name in names:
        if name not in known:
            message = f"no input is named {name!r}{nearest(name, known)}"
            yield document.error(path, message, offset=formula.find(name))


def _of_input(
    evidence: Evidence, document: Document[Any], path: Path, one: CalculatorInput
) -> Iterator[ContentError]:
    found: list[Value] = []
    for field, written in (("low", one.low), ("start", one.start), ("high", one.high)):
        problem = _ill_fitting(written, one.quantity, evidence)
        if problem:
            yield document.error((*path, field), problem)
        elif isinstance(written, str) and evidence.evaluate(written).error:
            continue  # said where it is written
        elif value := bound(written, evidence):
            found.append(value)
    if len(found) == 3:
        low, middle, high = map(numeric, found)
        if not (low < high and low <= middle <= high):
            message = "low must be below high, and start lie between them"
            yield document.error((*path, "low"), message)


def _ill_fitting(written: float | str, quantity: Quantity, evidence: Evidence) -> str | None:
    """Why an expression cannot stand for a quantity; what cannot be evaluated is told elsewhere."""
    if isinstance(written, int | float):
        return None
    found = evidence.evaluate(written)
    if found.absent or evidence.unprintable(found):
        return None
    value = found.result
    if not isinstance(value, Value) or isinstance(value.number, str):
        return f"{written} is no number"
    wanted = UNITS[quantity]
    alike = value.unit.is_number if wanted.is_number else value.unit == wanted
    return None if alike else f"{written} is {value.unit}, not {quantity.replace('_', ' ')}"


def _of_check(
    evidence: Evidence,
    document: Document[Any],
    path: Path,
    output: CalculatorOutput,
    check: CheckOnRun,
    inputs: Mapping[str, CalculatorInput],
) -> Iterator[ContentError]:
    """What is wrong with a run that a formula is compared with, and not computed from."""
    measured = evidence.evaluate(check.measured)
    if measured.error is None and measured.absent is None and not measured.measured:
        message = f"{check.measured} is nothing that a run measured"
        yield document.error((*path, "measured"), message)
    if problem := _ill_fitting(check.measured, output.quantity, evidence):
        yield document.error((*path, "measured"), problem)
    names = parsed(output.formula).names
    for name in names:
        if name not in check.given:
            yield document.error((*path, "given"), f"the formula needs {name!r} on this run")
    for name, written in check.given.items():
        problem = f"the formula does not use {name!r}{nearest(name, names)}"
        if name in names:
            fields = measured.measured
            problem = _ungiven(evidence, written, inputs[name].quantity, fields) or ""
        if problem:
            yield document.error((*path, "given", name), problem)


def _ungiven(
    evidence: Evidence, written: float | str, quantity: Quantity, measured: Collection[str]
) -> str | None:
    """Why an input cannot be this expression on a run, or None."""
    if isinstance(written, int | float):
        return None
    found = evidence.evaluate(written)
    shared = sorted(set(found.measured) & set(measured))
    if shared:
        return f"reads {shared[0]}, the very field that the formula is compared with"
    return evidence.unprintable(found) or _ill_fitting(written, quantity, evidence)


def _too_far(
    evidence: Evidence,
    document: Document[Any],
    path: Path,
    output: CalculatorOutput,
    check: CheckOnRun,
) -> Iterator[ContentError]:
    """Whether the formula is further off than allowed; judged where the book was written."""
    if evidence.unprintable(evidence.evaluate(check.measured)):
        return  # said where it is written
    try:
        found = checked(output, check, evidence)
    except ExpressionError as error:
        yield document.error((*path, "measured"), str(error))
        return
    shown = evidence.book.holder(check.run)
    is_reference = shown and shown.machine.name == evidence.book.reference.name
    if found and is_reference and found.is_beyond(output.within):
        off = found.off if found.off is not None else found.by_formula - found.measured
        message = (
            f"{output.name} is off by {off} on {check.run}: {found.by_formula} by the formula, "
            f"{found.measured} measured; within allows less"
        )
        yield document.error((*path, "measured"), message)
