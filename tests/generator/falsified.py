"""Making a claim false: one field of one trace changed, as tests of keys and claims need it.

Which field, and which value, follows from the rule: a measured field that the claim reads takes a
value with which the rule fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from generator.content.book import Book
from generator.content.claim import Claim
from generator.evidence.evaluation import Evidence
from generator.evidence.verdicts import MIN_SAMPLES
from runners.traces.fields import NAMES, Key, at, steps_of
from runners.traces.measured import SampledSeconds
from runners.traces.records import Run
from tests.recorded import as_recorded

TOO_SLOW, TOO_FAST = 99.0, 1e-9  # seconds that no step here takes
MOST = 12  # fields of a claim that are tried
WORDS = ("completed", "out_of_memory", "deadlocked", "0123456789ab", "another word")


def refuted(evidence: Evidence, claim: Claim) -> Evidence | None:
    """The evidence with one field changed, so that a claim that holds does not; None in vain."""
    for field, value in _changes(evidence, claim):
        try:
            changed = Evidence(with_field(evidence.book, field, value))
        except ValueError:
            continue  # a value that no run can have
        if changed.outcome(claim.id).verdict != "holds":
            return changed
    return None


def _changes(evidence: Evidence, claim: Claim) -> Iterator[tuple[str, object]]:
    """Changes worth trying, of the fields that a claim observes first."""
    predicted, observed = evidence.sides(claim)
    fields = {**observed.measured, **predicted.measured}
    values = {field: _value(evidence, field) for field in fields}
    plain = [one for one in values.values() if isinstance(one, str | int | float)]
    number = getattr(predicted.result, "number", None)  # what must differ is made the same
    same = [one for one in dict.fromkeys([number, *plain[:MOST]]) if one is not None]
    tries = [[*_others(value), *same] for value in list(values.values())[:MOST]]
    for position in range(max(map(len, tries), default=0)):
        for field, others in zip(values, tries, strict=False):
            if position < len(others):
                yield field, others[position]


def _value(evidence: Evidence, field: str) -> object:
    experiment, run, *steps = steps_of(field)
    return at(evidence.book.traces[str(experiment)].runs[str(run)], steps)


def _others(value: object) -> Iterator[object]:
    """What a field could have been instead: far above and far below, or another word."""
    if isinstance(value, SampledSeconds):
        for seconds in (TOO_SLOW, TOO_FAST):
            num = max(len(value.samples), MIN_SAMPLES)
            yield SampledSeconds.of([seconds] * num).model_dump(mode="json")
    elif isinstance(value, str):
        yield from (word for word in WORDS if word != value)
    elif isinstance(value, int | float):
        yield from (value * 1e6 + 1, -value * 1e6 - 1, value * 10 + 1, value * 0.1 - 0.01, 0, -1.0)
        yield from (round(value * 1000 + 1), value + 1, value - 1)


def with_field(book: Book, field: str, value: object) -> Book:
    """A book with one field of one run changed.

    With the status of a run its declared outcome, its error and the status of its ranks change.

    Raises:
        ValueError: of pydantic, where the run would be none any more.
    """
    experiment, name, *steps = steps_of(field)
    assert isinstance(experiment, str)
    assert isinstance(name, str)
    shown = book.traces[experiment]
    document = shown.runs[name].model_dump(mode="json")
    if steps == ["status"]:
        document |= dict.fromkeys(("status", "expected_status"), value)
        document |= dict.fromkeys(("expected_death", "error"))
        as_recorded(document)
    else:
        holder: Any = document
        for key in steps[:-1]:
            holder = holder[_place(holder, key)]
        holder[_place(holder, steps[-1])] = value
    run = Run.model_validate(document)
    trace = shown.trace.model_copy(update={"runs": {**shown.trace.runs, name: run}})
    return replace(book, traces={**book.traces, experiment: replace(shown, trace=trace)})


def _place(holder: Any, key: Key) -> Any:
    """The key or position that a step means, as in an expression."""
    if isinstance(holder, dict) or isinstance(key, int):
        return key
    named = (n for n, one in enumerate(holder) if key in [str(one.get(name)) for name in NAMES])
    return next(named)
