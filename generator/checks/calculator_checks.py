"""What an author got wrong in a calculator: names, quantities, formulas, and how far off these are.

In: the document of a lesson on cost, and the evidence. Out: located errors. A formula that is
further off than its author allows is one, where the book was written; on other machines the page
says how far off it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from generator.content.claim import Tolerance
from generator.content.documents import Document
from generator.content.errors import ContentError, nearest
from generator.content.modes.cost import (
    Calculator,
    CalculatorInput,
    CalculatorOutput,
    CostFile,
    FormulaCheck,
    Quantity,
)
from generator.content.yaml_source import Path
from generator.evidence.calculator import (
    NAMED,
    UNITS,
    Checked,
    CheckOnRun,
    bound,
    checked,
    on_run,
    parsed,
)
from generator.evidence.value import ExpressionError, Value, numeric

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence


def mistakes(evidence: Evidence, document: Document[Any]) -> Iterator[ContentError]:
    """What is wrong with the calculator of a lesson on cost, each error at its place."""
    if not isinstance(document.model, CostFile):
        return
    calculator = document.model.calculator
    yield from _repeated(document, calculator)
    used: set[str] = set()
    for position, output in enumerate(calculator.outputs):
        path = ("calculator", "outputs", position)
        known = {one.name: one for one in calculator.inputs}
        try:
            names = parsed(output.formula).names
        except ExpressionError as error:
            yield document.error((*path, "formula"), str(error), offset=error.offset or 0)
            continue
        used.update(names)
        lost = [name for name in names if name not in known]
        for name in lost:
            message = f"no input is named {name!r}{nearest(name, known)}"
            offset = output.formula.find(name)
            yield document.error((*path, "formula"), message, offset=offset)
        if not lost:
            yield from _of_output(evidence, document, path, output, calculator)
    yield from _limits(evidence, document, calculator)
    yield from _unreadable(evidence, document, calculator)
    for position, one in enumerate(calculator.inputs):
        yield from _of_input(evidence, document, ("calculator", "inputs", position), one)
        if one.name not in used and len(used) > 0:
            message = f"no formula uses the input {one.name!r}"
            yield document.error(("calculator", "inputs", position, "name"), message)


def _limits(
    evidence: Evidence, document: Document[Any], calculator: Calculator
) -> Iterator[ContentError]:
    """Limits that are no formulas, that name what is no other input, or that a start exceeds."""
    starts = _starts(calculator, evidence)
    for position, one in enumerate(calculator.inputs):
        if one.at_most is None:
            continue
        path = ("calculator", "inputs", position, "at_most")
        try:
            limit = parsed(one.at_most)
        except ExpressionError as error:
            yield document.error(path, str(error), offset=error.offset or 0)
            continue
        others = {other.name for other in calculator.inputs} - {one.name}
        lost = [name for name in limit.names if name not in others]
        for name in lost:
            message = f"no other input is named {name!r}{nearest(name, others)}"
            yield document.error(path, message)
        if not lost and {one.name, *limit.names} <= starts.keys():
            most = limit.value(starts)
            if most is not None and starts[one.name] > most:
                message = f"above at_most:, which gives {most:,g} at the starts of the others"
                yield document.error((*path[:-1], "start"), message)


def _starts(calculator: Calculator, evidence: Evidence) -> dict[str, float]:
    """The numbers at which inputs start; those that have none are said where they are written."""
    found = {one.name: evidence.evaluate(one.start).result for one in calculator.inputs}
    return {
        name: float(numeric(value))
        for name, value in found.items()
        if isinstance(value, Value) and not value.absent and not isinstance(value.number, str)
    }


def _unreadable(
    evidence: Evidence, document: Document[Any], calculator: Calculator
) -> Iterator[ContentError]:
    """Inputs that `on_run` does not find on a run, each told for the first such run."""
    told: set[str] = set()
    positions = {one.name: position for position, one in enumerate(calculator.inputs)}
    for output, check in _sound(calculator, evidence):
        for one in calculator.inputs:
            if one.on_run is None or one.name in told or one.name in check.given:
                continue
            found = on_run(check, output, calculator, evidence)
            read = found.given.get(one.name)
            problem = evidence.unprintable(evidence.evaluate(read)) if isinstance(read, str) else ""
            if problem:
                told.add(one.name)
                path = ("calculator", "inputs", positions[one.name], "on_run")
                yield document.error(path, f"for {found.run}: {problem}")


def _sound(
    calculator: Calculator, evidence: Evidence
) -> Iterator[tuple[CalculatorOutput, FormulaCheck]]:
    """Checks of formulas that can be read, against laws that there are."""
    for output in calculator.outputs:
        try:
            parsed(output.formula)
        except ExpressionError:
            continue
        for check in output.checked_on:
            if check.law is None or check.law in evidence.book.claims:
                yield output, check


def _repeated(document: Document[Any], calculator: Calculator) -> Iterator[ContentError]:
    seen: set[str] = set()
    for key in ("inputs", "outputs"):
        for position, one in enumerate(getattr(calculator, key)):
            if one.name in seen or one.name in NAMED:
                why = "is a function" if one.name in NAMED else "stands above already"
                yield document.error(("calculator", key, position, "name"), f"{one.name!r} {why}")
            seen.add(one.name)


def _of_input(
    evidence: Evidence, document: Document[Any], path: Path, one: CalculatorInput
) -> Iterator[ContentError]:
    found: dict[str, Value] = {}
    for field, written in (("low", one.low), ("start", one.start), ("high", one.high)):
        problem = _ill_fitting(written, one.quantity, evidence)
        if problem:
            yield document.error((*path, field), problem)
        elif isinstance(written, str) and evidence.evaluate(written).error:
            continue  # said where it is written
        elif value := bound(written, evidence):
            found[field] = value
    if len(found) == 3:
        low, middle, high = (numeric(found[field]) for field in ("low", "start", "high"))
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


def _of_output(
    evidence: Evidence,
    document: Document[Any],
    path: Path,
    output: CalculatorOutput,
    calculator: Calculator,
) -> Iterator[ContentError]:
    """What is wrong with the runs that a formula is compared with, and whether it holds there."""
    known = {one.name: one for one in calculator.inputs}
    if (output.within.relative is None) == (output.within.absolute is None):
        message = "give relative or absolute, one of the two"
        yield document.error((*path, "within"), message)
    for position, written in enumerate(output.checked_on):
        if written.law is not None and written.law not in evidence.book.claims:
            continue  # said where it is named
        check = on_run(written, output, calculator, evidence)
        place = (*path, "checked_on", position)
        faults = list(_of_check(evidence, document, place, output, check, known))
        yield from faults
        if not faults:
            yield from _too_far(evidence, document, (*place, "measured"), output, check)


def _of_check(
    evidence: Evidence,
    document: Document[Any],
    path: Path,
    output: CalculatorOutput,
    check: CheckOnRun,
    known: Mapping[str, CalculatorInput],
) -> Iterator[ContentError]:
    names = parsed(output.formula).names
    for name in names:
        if name not in check.given:
            yield document.error((*path, "given"), f"the formula needs {name!r} on this run")
    for name, written in check.given.items():
        if name not in names:
            message = f"the formula does not use {name!r}{nearest(name, names)}"
            yield document.error((*path, "given", name), message)
        elif problem := _ill_fitting(written, known[name].quantity, evidence):
            yield document.error((*path, "given", name), problem)
    if problem := _ill_fitting(check.measured, output.quantity, evidence):
        yield document.error((*path, "measured"), problem)
    yield from _worked_out(evidence, document, path, check)


def _worked_out(
    evidence: Evidence, document: Document[Any], path: Path, check: CheckOnRun
) -> Iterator[ContentError]:
    """A formula is compared with what a run measured, and not computed from it."""
    measured = evidence.evaluate(check.measured)
    if measured.error is None and measured.absent is None and not measured.measured:
        message = f"{check.measured} is nothing that a run measured"
        yield document.error((*path, "measured"), message)
    for name, written in check.given.items():
        if not isinstance(written, str):
            continue
        shared = sorted(set(evidence.evaluate(written).measured) & set(measured.measured))
        if shared:
            message = f"reads {shared[0]}, the very field that the formula is compared with"
            yield document.error((*path, "given", name), message)


def _too_far(
    evidence: Evidence,
    document: Document[Any],
    path: Path,
    output: CalculatorOutput,
    check: CheckOnRun,
) -> Iterator[ContentError]:
    """Whether the formula is further off than allowed; judged where the book was written."""
    texts = [text for text in (check.measured, *check.given.values()) if isinstance(text, str)]
    if any(evidence.unprintable(evidence.evaluate(text)) for text in texts):
        return  # said where it is written
    try:
        found = checked(output, check, evidence)
    except ExpressionError as error:
        yield document.error(path, str(error))
        return
    if found is None or not _is_reference(evidence, check.run):
        return
    if found.distance > _allowed(output.within, found):
        off = found.off if found.off is not None else found.by_formula - found.measured
        message = (
            f"{output.name} is off by {off} on {check.run}: {found.by_formula} by the formula, "
            f"{found.measured} measured; within allows less"
        )
        yield document.error(path, message)


def _allowed(within: Tolerance, found: Checked) -> float:
    share = (within.relative or 0) * abs(numeric(found.measured))
    return float(share + (within.absolute or 0))


def _is_reference(evidence: Evidence, run: str) -> bool:
    shown = evidence.book.holder(run)
    return shown is not None and shown.machine.name == evidence.book.reference.name
