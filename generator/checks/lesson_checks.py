"""Lessons checked against their topic's items, the runs and the code that they name.

In: a lesson's document and the evidence. Out: what is wrong, each at a path of that document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from generator.content.book import Topic
from generator.content.cost import CostFile, CostRow
from generator.content.documents import Document
from generator.content.errors import nearest
from generator.content.exhibit import Figure
from generator.content.lesson import (
    DeepFile,
    LearnFile,
    TraceFile,
    Trial,
    TryFile,
    WhyFile,
)
from generator.content.listed_code import listed, misplaced
from generator.content.names import RUN
from generator.content.quiz import FaultyLine
from generator.content.shelf import missing_run
from generator.content.yaml_source import Path
from generator.evidence import growth, law_formula, law_sides, play_states
from generator.evidence.evaluation import Evidence
from generator.evidence.filters import RESERVED
from generator.items import evidence_checks

Found = tuple[Path, str]
MAY_BE_BOUND = frozenset({"run", "other", "rank"})  # by `for:`; `rank(rank)` names the one bound


def mistakes(evidence: Evidence, document: Document[Any]) -> Iterator[Found]:
    """Everything in one lesson that does not fit what it names."""
    model = document.model
    (topic,) = (one for one in evidence.book.topics if document in one.lessons.values())
    yield from short_names(evidence, document)
    for position, figure in enumerate(model.figures):
        for path, message in _drawn(evidence, figure):
            yield ("figures", position, *path), message
    for kind, check in _BY_MODE.items():
        if isinstance(model, kind):
            yield from check(evidence, model, topic)


def _drawn(evidence: Evidence, figure: Figure) -> Iterator[Found]:
    """What keeps a figure from showing what its kind shows, at a path below the figure."""
    if figure.growth:
        for field, message in growth.faults(evidence, figure.growth):
            yield ("growth", field), message
    yield from play_states.faults(figure, evidence)
    for position, name in enumerate(figure.runs if figure.kind == "placement" else ()):
        run = evidence.book.run(name)
        if run and run.status == "completed" and not all(one.memory for one in run.ranks):
            message = f"{name} records no memory, so the figure would show empty ranks"
            yield ("runs", position), f"{message}; name a run that is metered"


def short_names(evidence: Evidence, document: Document[Any]) -> Iterator[Found]:
    """Names of `with:` and `for:` that stand for something already, or for no run."""
    for one in document.fields:
        is_case = one.mark == "case"
        if not is_case and (len(one.path) < 2 or one.path[-2] != "with"):
            continue
        is_path = is_case and RUN.fullmatch(one.text)
        problem = missing_run(evidence.book.traces, one.text) if is_path else None
        if one.name in evidence.book.traces:
            problem = f"{one.name!r} is an experiment; choose another name"
        elif one.name in RESERVED - (MAY_BE_BOUND if is_case else frozenset()):
            problem = f"{one.name!r} means something in every expression; choose another name"
        if problem:
            yield one.path, problem


def _kind(topic: Topic, name: str, kinds: Sequence[str], path: Path) -> Iterator[Found]:
    """An item that stands where only some kinds can."""
    item = topic.items.get(name)
    if item and item.kind not in kinds:
        yield path, f"item {name!r} is of kind {item.kind}; here it must be {' or '.join(kinds)}"


def _trace(evidence: Evidence, model: TraceFile, _: Topic) -> Iterator[Found]:
    """The stages or steps of a table that its run did not record."""
    tables = (
        ("data_flow", model.data_flow, "stages", "stage"),
        ("prediction", model.prediction, "steps", "step"),
    )
    for part, table, rows, key in tables:
        run = evidence.book.run(table.run) if table else None
        if run is None or run.status == "skipped" or run.is_surprise:
            continue
        recorded = [one.name for one in (run.stages if key == "stage" else run.prediction)]
        for position, row in enumerate(getattr(table, rows)):
            name = getattr(row, key)
            if name not in recorded:
                message = f"recorded no {key} {name!r}{nearest(name, recorded)}"
                yield (part, rows, position, key), f"{table and table.run} {message}"


def _learn(evidence: Evidence, model: LearnFile, topic: Topic) -> Iterator[Found]:
    yield from _kind(topic, model.guess, ("choice", "predict"), ("guess",))
    try:
        code = listed(evidence.book.root, model.program.path, model.program.object)
    except ValueError:
        return  # said at the listing
    for position, note in enumerate(model.walkthrough):
        problem = misplaced(code, note.code)
        if problem:
            yield ("walkthrough", position, "code"), problem


def _why(evidence: Evidence, model: WhyFile, _: Topic) -> Iterator[Found]:
    for position, decision in enumerate(model.decisions):
        problem = evidence_checks.unheld(evidence, decision.claim) if decision.claim else None
        if problem:
            yield ("decisions", position, "claim"), problem


def _deep(_: Evidence, model: DeepFile, topic: Topic) -> Iterator[Found]:
    """A pitfall whose question is of another kind, or about other programs than its own."""
    for position, one in enumerate(model.pitfalls):
        if one.question:
            path = ("pitfalls", position, "question")
            yield from _kind(topic, one.question, ("faulty_line",), path)
            item = topic.items.get(one.question)
            if not isinstance(item, FaultyLine):
                continue
            asked = [item.wrong.path, item.right.path]
            if asked != [one.wrong.path, one.right.path]:
                said = f"item {one.question!r} asks about {' and '.join(asked)}"
                yield path, f"{said}; the pitfall has other programs, which no page would show"


def _try(evidence: Evidence, model: TryFile, topic: Topic) -> Iterator[Found]:
    for position, trial in enumerate(model.trials):
        at: Path = ("trials", position)
        yield from _kind(topic, trial.item, ("predict", "number"), (*at, "item"))
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


def _cost(evidence: Evidence, model: CostFile, _: Topic) -> Iterator[Found]:
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


_BY_MODE: dict[type[Any], Callable[[Evidence, Any, Topic], Iterator[Found]]] = {
    LearnFile: _learn,
    WhyFile: _why,
    DeepFile: _deep,
    TraceFile: _trace,
    TryFile: _try,
    CostFile: _cost,
}
