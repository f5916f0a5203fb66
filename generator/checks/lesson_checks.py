"""Lessons checked against their topic's items, the runs and the code that they name.

In: a lesson's document and the evidence. Out: what is wrong, each at a path of that document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from generator.content.documents import Document
from generator.content.errors import nearest
from generator.content.exhibit import Figure
from generator.content.lesson import CostFile, CostRow, TraceFile, Trial, TryFile
from generator.content.yaml_source import Path
from generator.evidence import growth, law_formula, law_sides, play_states
from generator.evidence.evaluation import Evidence

Found = tuple[Path, str]


def mistakes(evidence: Evidence, document: Document[Any]) -> Iterator[Found]:
    """Everything in one lesson that does not fit what it names."""
    model = document.model
    for position, figure in enumerate(model.figures):
        for path, message in _drawn(evidence, figure):
            yield ("figures", position, *path), message
    for kind, check in _BY_MODE.items():
        if isinstance(model, kind):
            yield from check(evidence, model)


def _drawn(evidence: Evidence, figure: Figure) -> Iterator[Found]:
    """What keeps a figure from showing what its kind shows, at a path below the figure."""
    if figure.growth:
        for field, message in growth.faults(evidence, figure.growth):
            yield ("growth", field), message
    yield from play_states.faults(figure, evidence)


def _trace(evidence: Evidence, model: TraceFile) -> Iterator[Found]:
    """The stages or steps of a table that its run did not record."""
    for part, table in (("data_flow", model.data_flow), ("prediction", model.prediction)):
        run = evidence.book.run(table.run) if table else None
        if table is None or run is None or run.status == "skipped" or run.is_surprise:
            continue
        recorded = [one.name for one in (run.stages if part == "data_flow" else run.prediction)]
        for position, row in enumerate(table.rows):
            if row.name not in recorded:
                message = f"{table.run} recorded no {row.name!r}{nearest(row.name, recorded)}"
                yield (part, "rows", position, "name"), message


def _try(evidence: Evidence, model: TryFile) -> Iterator[Found]:
    for position, trial in enumerate(model.trials):
        at: Path = ("trials", position)
        if not trial.value.strip().lstrip("(").startswith((f"{trial.run}.", f"{trial.run}[")):
            yield (*at, "value"), f"the value is read off the trial's run: it starts {trial.run}."
        yield from _suggestions(evidence, trial, at)


def _suggestions(evidence: Evidence, trial: Trial, at: Path) -> Iterator[Found]:
    """Settings that the run does not have."""
    run = evidence.book.run(trial.run)
    known = {**run.settings, "world_size": run.world_size} if run else {}
    for number, suggestion in enumerate(trial.suggestions if run else ()):
        for name in suggestion.set.keys() - known.keys():
            path = (*at, "suggestions", number, "set", name)
            yield path, f"{trial.run} has no setting {name!r}{nearest(name, known)}"


def _cost(evidence: Evidence, model: CostFile) -> Iterator[Found]:
    for number, table in enumerate(model.tables):
        for position, row in enumerate(table.rows):
            yield from _by_law(evidence, row, ("tables", number, "rows", position))


def _by_law(evidence: Evidence, row: CostRow, at: Path) -> Iterator[Found]:
    """A law that cannot stand in a row: it compares no numbers, or has no formula to show."""
    claim = evidence.book.claims.get(row.law)
    if claim is None:
        return  # said where it is named
    problem = law_sides.not_a_number(claim, evidence)
    if problem:
        yield (*at, "law"), problem
    elif not (law_formula.shown(claim) or evidence.outcome(claim.id).error):
        yield (*at, "law"), f"{row.law} prints no formula; give the claim formula:"


_BY_MODE: dict[type[Any], Callable[[Evidence, Any], Iterator[Found]]] = {
    TraceFile: _trace,
    TryFile: _try,
    CostFile: _cost,
}
