"""Making a claim false: one field of one trace changed, as the claim itself says.

The tests apply every claim's change and see that the claim no longer holds and that keys follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from generator.content.book import Book
from generator.content.claim import Claim, Falsifier
from generator.content.shelf import TraceOnPage
from generator.evidence.paths import NAMES, Key
from runners.trace import Run, Samples, Trace, steps_of

__all__ = ["falsified_problem", "falsify", "steps_of"]


def falsify(traces: Mapping[str, TraceOnPage], claim: Claim) -> dict[str, TraceOnPage]:
    """The traces with the one field changed that makes the claim false.

    Samples are given as a list of seconds; their quartiles follow.

    Raises:
        ValueError: the path leads nowhere, or the trace would not be a trace any more.
    """
    experiment, run, *steps = steps_of(claim.falsified_by.field)
    shown = traces.get(str(experiment))
    if shown is None or run not in shown.trace.runs:
        raise ValueError(f"no run {experiment}.{run}")
    document = shown.trace.runs[str(run)].model_dump(mode="json")
    _put(document, steps, _new_value(shown.trace, claim.falsified_by))
    try:
        changed = Run.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in ("runs", run, *first["loc"]))
        raise ValueError(f"the changed trace is no trace: {field}: {first['msg']}") from None
    runs = {**shown.trace.runs, str(run): changed}
    trace = shown.trace.model_copy(update={"runs": runs})
    return {**traces, str(experiment): replace(shown, trace=trace)}


def _new_value(trace: Trace, falsifier: Falsifier) -> Any:  # noqa: ANN401
    if falsifier.same_as is None:
        return falsifier.value
    experiment, run, *steps = steps_of(falsifier.same_as)
    if experiment != trace.experiment:
        raise ValueError("same_as names a field of another experiment")
    if run not in trace.runs:
        raise ValueError(f"no run {experiment}.{run}")
    holder: Any = trace.runs[str(run)].model_dump(mode="json")
    for key in steps:
        holder = holder[_place(holder, key)]
    return holder


def _put(run: Any, steps: list[Key], value: Any) -> None:  # noqa: ANN401
    if steps[-1] == "samples" and isinstance(value, list):
        steps = steps[:-1]
    are_times = steps[-1] == "step" or steps[-3:-1] == ["timing", "measures"]
    if are_times and isinstance(value, list):
        value = Samples.of([float(second) for second in value]).model_dump(mode="json")
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
    try:
        experiment, run, *_ = steps_of(claim.falsified_by.field)
    except ValueError as error:
        return str(error)
    shown = book.traces.get(str(experiment))
    if shown is None:
        return f"no trace of {experiment!r}"
    if shown.machine.name != book.reference.name:
        return None  # its fields may be empty here; the reference machine's check sees to it
    if run not in shown.trace.runs or shown.trace.runs[str(run)].is_surprise:
        return None if run in shown.trace.runs else f"{experiment} has no run {run!r}"
    try:
        falsify(book.traces, claim)
    except ValueError as error:
        return str(error)
    return None
