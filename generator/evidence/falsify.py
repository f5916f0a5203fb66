"""Making a claim false: one field of one trace changed.

In: a claim that holds, and the evidence. Out: the change, and the traces with it. Which field, and
which value, follows from the rule: a measured field that the claim observes takes a value with
which the rule fails. A claim states its own change only where no such change is enough.
The tests apply every claim's change and see that the claim no longer holds and that keys follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from generator.content.book import Book
from generator.content.claim import Claim, Falsifier
from generator.content.shelf import TraceOnPage, no_trace
from generator.evidence.evaluation import Evidence
from generator.evidence.paths import NAMES, Key
from generator.evidence.verdicts import MIN_SAMPLES, sides
from runners.traces.fields import at, steps_of
from runners.traces.measured import SampledSeconds
from runners.traces.records import Run

__all__ = ["falsified_problem", "falsifier", "falsify", "steps_of"]

TOO_SLOW, TOO_FAST = 99.0, 1e-9  # seconds that no step here takes
WORDS = ("completed", "out_of_memory", "deadlocked", "0123456789ab", "another word")
KINDS = {
    "out_of_memory": "out_of_memory", "deadlocked": "hang", "diverged": "diverged",
    "failed": "exception", "died": "signal",
}  # fmt: skip


def falsifier(evidence: Evidence, claim: Claim) -> Falsifier | None:
    """The change that makes a claim false: the claim's own, or one that follows from its rule.

    Args:
        evidence: with which the claim holds; one with which it does not is left as it is.
        claim: one of its book's.

    Returns:
        None where no change of one field that the claim reads is enough.
    """
    if claim.falsified_by is not None or evidence.outcome(claim.id).verdict != "holds":
        return claim.falsified_by
    book = evidence.book
    for change in changes(evidence, claim):
        try:
            changed = replace(book, traces=falsify(book.traces, change))
        except ValueError:
            continue  # a value that no run can have
        if Evidence(changed).outcome(claim.id).verdict != "holds":
            return change
    return None


def changes(evidence: Evidence, claim: Claim) -> Iterator[Falsifier]:
    """Changes worth trying, of the fields that a claim observes first."""
    predicted, observed = sides(evidence, claim)
    fields = dict.fromkeys(observed.measured + predicted.measured)
    values = {field: _value(evidence, field) for field in fields}
    words = dict.fromkeys(one for one in values.values() if isinstance(one, str))
    for field, value in values.items():
        for other in _other_values(value):
            yield Falsifier(field=field, value=other)
        if isinstance(value, str):  # what must differ is made the same
            yield from (Falsifier(field=field, value=word) for word in words if word != value)


def _value(evidence: Evidence, field: str) -> object:
    experiment, run, *steps = steps_of(field)
    return at(evidence.book.traces[str(experiment)].runs[str(run)], steps)


def _other_values(value: object) -> Iterator[int | float | str | list[float]]:
    """What a field could have been instead: far above and far below, or another word."""
    if isinstance(value, SampledSeconds):
        for seconds in (TOO_SLOW, TOO_FAST):
            yield [seconds] * max(len(value.samples), MIN_SAMPLES)
    elif isinstance(value, str):
        yield from (word for word in WORDS if word != value)
    elif isinstance(value, int | float):
        yield from (value * 10 + 1, value * 0.1 - 0.01, 0, round(value * 1000 + 1), -1.0)
        yield from (value + 1, value - 1)


def falsify(traces: Mapping[str, TraceOnPage], change: Falsifier) -> dict[str, TraceOnPage]:
    """The traces with one field changed.

    SampledSeconds are given as a list of seconds; their quartiles follow. With the status of a run
    its declared outcome, its error and the status of its ranks change, as if it had been meant so.

    Raises:
        ValueError: the path leads nowhere, or the trace would not be a trace any more.
    """
    experiment, run, *steps = steps_of(change.field)
    shown = traces.get(str(experiment))
    if shown is None or run not in shown.runs:
        raise ValueError(f"no run {experiment}.{run}")
    document = shown.runs[str(run)].model_dump(mode="json")
    value = _new_value(shown, change)
    if steps == ["status"]:
        _end_as(document, str(value))
    else:
        _put(document, steps, value)
    try:
        changed = Run.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in ("runs", run, *first["loc"]))
        raise ValueError(f"the changed trace is no trace: {field}: {first['msg']}") from None
    runs = {**shown.trace.runs, str(run): changed}
    trace = shown.trace.model_copy(update={"runs": runs})
    return {**traces, str(experiment): replace(shown, trace=trace)}


def _new_value(shown: TraceOnPage, falsifier: Falsifier) -> Any:  # noqa: ANN401
    if falsifier.same_as is None:
        return falsifier.value
    experiment, run, *steps = steps_of(falsifier.same_as)
    if experiment != shown.trace.experiment:
        raise ValueError("same_as names a field of another experiment")
    if run not in shown.runs:
        raise ValueError(f"no run {experiment}.{run}")
    holder: Any = shown.runs[str(run)].model_dump(mode="json")
    for key in steps:
        holder = holder[_place(holder, key)]
    return holder


def _end_as(run: Any, status: str) -> None:  # noqa: ANN401
    """Let a run end otherwise, as a record that agrees with itself and with its declaration."""
    run["status"] = run["expected_status"] = status
    run.pop("expected_death", None)
    run["error"] = None
    if status in KINDS:
        run["error"] = {
            "kind": KINDS[status], "message": "changed", "requested_bytes": None, "rank": 0,
            "phase": "another phase", "step": None,
        }  # fmt: skip
        if status == "died":
            run["error"]["signal"] = "SIGKILL"
    for rank in run["ranks"]:
        is_root = rank["rank"] == 0 or status not in KINDS
        rank["status"] = status if is_root else rank["status"]
        rank["failure"] = run["error"] if is_root else rank["failure"]


def _put(run: Any, steps: list[Key], value: Any) -> None:  # noqa: ANN401
    if steps[-1] == "samples" and isinstance(value, list):
        steps = steps[:-1]
    are_times = steps[-1] == "step" or steps[-3:-1] == ["timing", "measures"]
    if are_times and isinstance(value, list):
        value = SampledSeconds.of([float(second) for second in value]).model_dump(mode="json")
    holder = run
    for key in steps[:-1]:
        holder = holder[_place(holder, key)]
    if not isinstance(holder, dict | list):
        raise ValueError("the path goes through a field that is empty here")
    place = _place(holder, steps[-1])
    holder[place] = value


def _place(holder: Any, key: Key) -> Any:  # noqa: ANN401
    """The key or position that a step means, as in an expression."""
    if isinstance(holder, dict) and key in holder:
        return key
    if isinstance(holder, list) and isinstance(key, int) and -len(holder) <= key < len(holder):
        return key
    for position, element in enumerate(holder if isinstance(holder, list) else ()):
        known = element if isinstance(element, dict) else {}
        if key in [str(known.get(name)) for name in NAMES]:
            return position
    raise ValueError(f"no {key!r} on the path")


def falsified_problem(book: Book, claim: Claim) -> str | None:
    """Why the change that a claim names cannot be applied where the book was written, or None."""
    if claim.falsified_by is None:
        return None
    try:
        experiment, run, *_ = steps_of(claim.falsified_by.field)
    except ValueError as error:
        return str(error)
    shown = book.holder(f"{experiment}.{run}")
    if shown is None:
        return no_trace(str(experiment), book.traces)
    if shown.machine.name != book.reference.name:
        return None  # its fields may be empty here; the reference machine's check sees to it
    if run not in shown.trace.runs or shown.trace.runs[str(run)].is_surprise:
        return None if run in shown.trace.runs else f"{experiment} has no run {run!r}"
    try:
        falsify(book.traces, claim.falsified_by)
    except ValueError as error:
        return str(error)
    return None
