"""Lessons checked against the runs, the laws and the formulas that they name.

In: a lesson's document and the evidence. Out: located errors. A formula of a calculator that is
further off than its author allows is one, where the book was written; on other machines the page
says how far off it was.
"""

from collections.abc import Collection, Iterator
from itertools import chain
from math import inf

from proofbook.generator.content.documents import Document
from proofbook.generator.content.errors import nearest
from proofbook.generator.content.exhibit import Figure, GrowthChart
from proofbook.generator.content.lesson import LessonFile
from proofbook.generator.content.yaml_source import Mistake, Path
from proofbook.generator.kinds.calculators.formulas import CheckOnRun, check_on_run, checked, parsed
from proofbook.generator.kinds.calculators.words import (
    Calculator,
    CalculatorInput,
    CalculatorOutput,
)
from proofbook.generator.kinds.figures.charts import rows_by_series
from proofbook.generator.kinds.figures.play import states as play_states
from proofbook.generator.kinds.lessons import words
from proofbook.generator.kinds.questions.item_checks import why_unheld
from proofbook.generator.values import claim_formula, units
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.value import ExpressionError, Value, numeric

WITHOUT_FIGURES = (
    words.TryFile,
    words.ChallengeFile,
    words.RecallFile,
)  # which have no part that names one


def figure_mistakes(evidence: Evidence, document: Document[LessonFile]) -> Iterator[Mistake]:
    """Yield (path, message): figures not shown, or that cannot show what their kind shows."""
    named = {field.text for field in document.fields if field.mark == "figure"}
    for position, figure in enumerate(document.model.figures):
        if figure.id not in named and figure not in evidence.book.exhibited.values():
            todo = f"write figure: {figure.id} where it teaches"
            if isinstance(document.model, WITHOUT_FIGURES):
                todo = "lessons of this mode show none, so delete it"
            yield ("figures", position, "id"), f"no part of the page shows it; {todo}"
        runs = ((name, evidence.book.run(name)) for name in figure.runs)
        if plain := [name for name, run in runs if run and run.is_plain]:
            message = f"draws what ranks record, and {plain[0]} has none; a growth draws any number"
            yield ("figures", position, "kind"), message
        faults = list(_faults_of_figure(evidence, figure))
        if figure.growth and not (faults or evidence.reference):
            faults = list(_unsaid_ends(figure.growth, evidence))
        yield from ((("figures", position, *path), message) for path, message in faults)


def _faults_of_figure(evidence: Evidence, figure: Figure) -> Iterator[Mistake]:
    """Faults of a figure, each with its path there: of a play's states, a growth's numbers."""
    yield from play_states.faults(figure, evidence)
    growth = figure.growth
    for series in growth.series if growth else ():
        for run in filter(evidence.book.run, series.runs):
            for field in ("x", "measured", "predicted"):
                written = getattr(series, field, None) or getattr(growth, field)
                evaluation = evidence.evaluate(written, run) if written else None
                if not evaluation or evaluation.absent:
                    continue
                value = evaluation.result
                if not isinstance(value, Value) or isinstance(value.number, str):
                    problem = evaluation.error or f"{written} is no number"
                    yield ("growth", field), f"for {run}: {problem}"


def _unsaid_ends(growth: GrowthChart, evidence: Evidence) -> Iterator[Mistake]:
    """Series that end before another one without a word of why, or have such words in vain."""
    if not all(map(evidence.book.run, (run for series in growth.series for run in series.runs))):
        return  # reported where they are named
    rows = rows_by_series(growth, evidence)
    last = {label: numeric(of_label[-1].x) for label, of_label in rows.items()}
    for position, series in enumerate(growth.series):
        is_early = last.get(series.label, inf) < max(last.values())
        if is_early != bool(series.ends):
            says = "ends before another: say why" if is_early else "ends with the last: delete this"
            yield ("growth", "series", position, "ends"), f"{series.label!r} {says}"


def trace_mistakes(evidence: Evidence, document: Document[words.TraceFile]) -> Iterator[Mistake]:
    """Yield (path, message): stages or steps of a table that its run did not record."""
    for part in ("data_flow", "prediction"):
        table: words.Recorded | None = getattr(document.model, part)
        run = evidence.book.run(table.run) if table else None
        if table is None or run is None or run.status == "skipped" or run.is_surprise:
            continue
        recorded = [row.name for row in (run.stages if part == "data_flow" else run.prediction)]
        for position, row in enumerate(table.rows):
            if row.name not in recorded:
                message = f"{table.run} recorded no {row.name!r}{nearest(row.name, recorded)}"
                yield (part, "rows", position, "name"), message


def try_mistakes(evidence: Evidence, document: Document[words.TryFile]) -> Iterator[Mistake]:
    """Yield (path, message): values not read off a trial's run, settings that it does not have."""
    for position, trial in enumerate(document.model.trials):
        if not trial.value.strip().lstrip("(").startswith((f"{trial.run}.", f"{trial.run}[")):
            message = f"the value is read off the trial's run: it starts {trial.run}."
            yield ("trials", position, "value"), message
        run = evidence.book.run(trial.run)
        known = {**run.settings, "world_size": run.world_size} if run else {}
        for number, suggestion in enumerate(trial.suggestions if run else ()):
            for name in suggestion.set.keys() - known.keys():
                path = ("trials", position, "suggestions", number, "set", name)
                yield path, f"{trial.run} has no setting {name!r}{nearest(name, known)}"


def cost_mistakes(evidence: Evidence, document: Document[words.CostFile]) -> Iterator[Mistake]:
    """Yield (path, message): laws without numbers or a formula; those of the calculator."""
    for number, table in enumerate(document.model.tables):
        for position, law in enumerate(row.law for row in table.rows):
            claim = evidence.book.claims.get(law)
            problem = claim and claim_formula.why_not_numeric(claim, evidence)
            if claim and not (
                problem or claim_formula.formula_of(claim) or evidence.judged(law).error
            ):
                problem = f"{law} prints no formula; give the claim formula:"
            if problem:
                yield ("tables", number, "rows", position, "law"), problem
    for path, message in _calculator_mistakes(evidence, document.model.calculator):
        yield ("calculator", *path), message


def _calculator_mistakes(evidence: Evidence, calculator: Calculator) -> Iterator[Mistake]:
    inputs = [entered.name for entered in calculator.inputs]
    for position, entered in enumerate(calculator.inputs):
        for field, problem in _other_quantity(evidence, entered):
            yield ("inputs", position, field), problem
        others = {*inputs} - {entered.name}
        if entered.at_most:
            yield from _unknown_names(("inputs", position, "at_most"), entered.at_most, others)
    for position, output in enumerate(calculator.outputs):
        lost = list(_unknown_names(("outputs", position, "formula"), output.formula, inputs))
        yield from lost
        for number, written in enumerate(() if lost else output.checked_on):
            if written.law is None or written.law in evidence.book.claims:
                check = check_on_run(written, output, calculator, evidence)
                wrong = (_unknown_names(("given", name), name, inputs) for name in written.given)
                mistakes = [*chain.from_iterable(wrong), *_run_mistakes(evidence, output, check)]
                for path, message in mistakes or _too_far(evidence, output, check):
                    yield ("outputs", position, "checked_on", number, *path), message


def _other_quantity(evidence: Evidence, entered: CalculatorInput) -> Iterator[tuple[str, str]]:
    """Bounds of an input that are not in its quantity."""
    wanted = units.BY_NAME[entered.quantity]
    for field in ("low", "start", "high"):
        written = getattr(entered, field)
        bound = evidence.evaluate(written).result if isinstance(written, str) else None
        if isinstance(bound, Value):
            is_alike = bound.unit.is_number if wanted.is_number else bound.unit == wanted
            if not is_alike:
                yield field, f"{written} is {bound.unit}, not {entered.quantity}"


def _unknown_names(path: Path, formula: str, known: Collection[str]) -> Iterator[Mistake]:
    """A formula that cannot be parsed, or names in it that are no inputs."""
    try:
        names = parsed(formula).names
    except ExpressionError as error:
        yield path, str(error)
        return
    for name in names:
        if name not in known:
            yield path, f"no input is named {name!r}{nearest(name, known)}"


def _run_mistakes(
    evidence: Evidence, output: CalculatorOutput, check: CheckOnRun
) -> Iterator[Mistake]:
    """A comparison with a run that measured nothing, or that reads what it is compared with."""
    measured = evidence.evaluate(check.measured)
    if not (measured.error or measured.absent or measured.measured):
        yield ("measured",), f"{check.measured} is nothing that a run measured"
    for name in parsed(output.formula).names:
        if name not in check.given:
            yield ("given",), f"the formula needs {name!r} on this run"
    for name, written in check.given.items():
        if isinstance(written, str):
            evaluation = evidence.evaluate(written)
            shared = sorted({*evaluation.measured} & {*measured.measured})
            problem = evidence.why_unprintable(evaluation)
            if shared:
                problem = f"reads {shared[0]}, the very field that the formula is compared with"
            if problem:
                yield ("given", name), problem


def _too_far(evidence: Evidence, output: CalculatorOutput, check: CheckOnRun) -> Iterator[Mistake]:
    """A formula that is further off than allowed; judged where the book was written."""
    if evidence.why_unprintable(evidence.evaluate(check.measured)):
        return  # said where it is written
    try:
        comparison = checked(output, check, evidence)
    except ExpressionError as error:
        yield ("measured",), str(error)
        return
    if comparison and evidence.reference is None and comparison.is_beyond(output.within):
        message = (
            f"{output.name} is off by {comparison.off} on {check.run}: {comparison.by_formula} "
            f"by the formula, {comparison.measured} measured; within allows less"
        )
        yield ("measured",), message


def why_mistakes(evidence: Evidence, document: Document[words.WhyFile]) -> Iterator[Mistake]:
    """Yield (path, message): claims behind a decision that do not hold."""
    for field in document.fields:
        is_reason = field.mark == "claim" and "decisions" in field.path
        is_known = is_reason and field.text in evidence.book.claims
        if is_known and (problem := why_unheld(evidence, field.text)):
            yield field.path, problem
