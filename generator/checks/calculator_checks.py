"""What an author got wrong in a calculator: names, quantities, formulas, and how far off these are.

In: the document of a lesson on cost, and the evidence. Out: located errors. A formula that is
further off than its author allows is one, where the book was written; on other machines the page
says how far off it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from generator.content.calculator import CalculatorOutput
from generator.content.documents import Document
from generator.content.errors import ContentError, nearest
from generator.content.lesson import CostFile
from generator.content.yaml_source import Path
from generator.evidence.calculator import CheckOnRun, checked, on_run, parsed
from generator.evidence.evaluation import Evidence
from generator.evidence.value import ExpressionError

Found = tuple[Path, str]


def mistakes(evidence: Evidence, document: Document[CostFile]) -> Iterator[ContentError]:
    """What is wrong with the calculator of a lesson on cost, each error at its place."""
    calculator = document.model.calculator
    inputs = [one.name for one in calculator.inputs]
    for position, one in enumerate(calculator.inputs):
        at: Path = ("calculator", "inputs", position)
        if one.at_most is not None:
            yield from _unknown(document, (*at, "at_most"), one.at_most, {*inputs} - {one.name})
    for position, output in enumerate(calculator.outputs):
        at = ("calculator", "outputs", position)
        lost = list(_unknown(document, (*at, "formula"), output.formula, inputs))
        yield from lost
        for number, written in enumerate(() if lost else output.checked_on):
            if written.law is None or written.law in evidence.book.claims:
                check = on_run(written, output, calculator, evidence)
                found = list(_of_check(evidence, output, check)) or _too_far(
                    evidence, output, check
                )
                for path, message in found:
                    yield document.error((*at, "checked_on", number, *path), message)


def _unknown(
    document: Document[Any], path: Path, formula: str, known: Collection[str]
) -> Iterator[ContentError]:
    """A formula that cannot be read, or names that are no inputs."""
    try:
        names = parsed(formula).names
    except ExpressionError as error:
        yield document.error(path, str(error))
        return
    for name in names:
        if name not in known:
            message = f"no input is named {name!r}{nearest(name, known)}"
            yield document.error(path, message, offset=formula.find(name))


def _of_check(evidence: Evidence, output: CalculatorOutput, check: CheckOnRun) -> Iterator[Found]:
    """What is wrong with a run that a formula is compared with, and not computed from."""
    measured = evidence.evaluate(check.measured)
    if not (measured.error or measured.absent or measured.measured):
        yield ("measured",), f"{check.measured} is nothing that a run measured"
    for name in parsed(output.formula).names:
        if name not in check.given:
            yield ("given",), f"the formula needs {name!r} on this run"
    for name, written in check.given.items():
        if isinstance(written, str):
            found = evidence.evaluate(written)
            shared = sorted({*found.measured} & {*measured.measured})
            problem = evidence.unprintable(found)
            if shared:
                problem = f"reads {shared[0]}, the very field that the formula is compared with"
            if problem:
                yield ("given", name), problem


def _too_far(evidence: Evidence, output: CalculatorOutput, check: CheckOnRun) -> Iterator[Found]:
    """Whether the formula is further off than allowed; judged where the book was written."""
    if evidence.unprintable(evidence.evaluate(check.measured)):
        return  # said where it is written
    try:
        found = checked(output, check, evidence)
    except ExpressionError as error:
        yield ("measured",), str(error)
        return
    shown = evidence.book.holder(check.run)
    is_reference = shown and shown.machine.name == evidence.book.reference.name
    if found and is_reference and found.is_beyond(output.within):
        off = found.off if found.off is not None else found.by_formula - found.measured
        message = (
            f"{output.name} is off by {off} on {check.run}: {found.by_formula} by the formula, "
            f"{found.measured} measured; within allows less"
        )
        yield ("measured",), message
