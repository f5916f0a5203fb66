"""What every trace obeys beyond the types of its fields: a trace that does not was not measured.

In: a trace whose fields have their types. Out: a `Violation` for each statement that contradicts
another one in the same trace, or that nothing can measure, with the path of the field. `files.py`
refuses such a trace when it is read. What concerns tensors is in `shape_invariants.py`, what
concerns clocks in `time_invariants.py`. Pure; no torch.

These are not laws. A law compares a run with a prediction and may turn out false on some machine.
An invariant follows from how the meters and the gathering write a trace, on any machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from runners.traces.measured import Collective, Memory, MemoryClasses, Timing
from runners.traces.records import Failure, RankRecord, Run, Trace
from runners.traces.schema import Nature, Record
from runners.traces.shape_invariants import of_model, of_stages
from runners.traces.time_invariants import of_recording, of_timing
from runners.traces.violation import Place, Violation, is_each_rank, unless_rank

_COUNTS = ("bytes", "count", "rank", "step", "epoch", "source", "destination", "world_size")
_TABLES = ("phases", "stages", "prediction")  # of bytes or of seconds, by a name
_MAY_BE_NEGATIVE = ("offset_seconds",)  # of one clock against another


def violations(trace: Trace) -> Iterator[Violation]:
    """Every invariant that a trace breaks, in the order of its fields."""
    yield from of_recording(trace)
    for name, run in trace.runs.items():
        place: Place = ("runs", name)
        yield from _of_numbers(place, run)
        yield from _of_status(place, run)
        if run.status != "skipped":
            yield from _of_ranks(place, run)
            yield from _of_epochs(place, run)
            yield from of_model(place, run)
            yield from of_stages(place, run)
            yield from of_timing((*place, "timing"), run)


def _of_numbers(place: Place, value: object, name: str = "") -> Iterator[Violation]:
    """Bytes, counts and seconds are not negative; shares and accuracies lie between 0 and 1.

    The name of a field says what it measures; elements of a list or of a table of numbers are
    what the list is.
    """
    if type(value) in (int, float):
        fault = _fault(name, value)  # type: ignore[arg-type] # int or float
        if fault:
            yield Violation(place, fault)
        return
    for key, inside in _inside(value):
        is_table = name in _TABLES and type(inside) in (int, float)
        is_named = isinstance(key, str) and not is_table
        own = key if is_named else f"{name}_bytes" if is_table else name
        yield from _of_numbers((*place, key), inside, str(own))


def _inside(value: object) -> Iterable[tuple[str | int, object]]:
    """The parts of a record, a table or a list.

    Times that an experiment works out itself, differences and fitted constants, may be negative.
    """
    if isinstance(value, list):
        return enumerate(value)
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, Timing):
        return [(name, part) for name, part in vars(value).items() if name != "measures"]
    return vars(value).items() if isinstance(value, Record) else ()


def _fault(name: str, value: float) -> str | None:
    if name.endswith(("_share", "accuracy")):
        return None if 0 <= value <= 1 else f"{value!r} is not a share between 0 and 1"
    is_amount = (
        name in _COUNTS
        or name.endswith(("_bytes", "_seconds"))
        or name.startswith(("num_", "shape_"))
        or name in ("samples", "weight_shape")
    )
    if is_amount and value < 0 and name not in _MAY_BE_NEGATIVE:
        return f"{value!r} is negative"
    return None


def _of_status(place: Place, run: Run) -> Iterator[Violation]:
    """The status of a run agrees with its reason, its error, its passes and its ranks."""
    if run.status == "skipped":
        yield from _of_skipped(place, run)
        return
    if run.reason is not None:
        yield Violation((*place, "reason"), "only a skipped run has a reason")
    if not run.passes or len(set(run.passes)) < len(run.passes):
        yield Violation((*place, "passes"), "a run that was not skipped has passes, each once")
    if run.status in ("completed", "diverged"):
        yield from _of_ended(place, run)
    else:
        yield from _of_failed(place, run)


def _of_ended(place: Place, run: Run) -> Iterator[Violation]:
    """A run without a failure, whose values stayed finite or did not."""
    if run.error is not None:
        yield Violation((*place, "error"), f"a run that {_ended(run)} has no error")
    if (run.status == "diverged") != bool(run.non_finite):
        said = "a run has diverged exactly where a value was not finite"
        yield Violation((*place, "non_finite"), said)
    for index, rank in enumerate(run.ranks):
        if rank.status != "completed" or rank.failure is not None:
            said = f"{rank.status}, in a run that {_ended(run)}"
            yield Violation((*place, "ranks", index, "status"), said)


def _ended(run: Run) -> str:
    return "has diverged" if run.status == "diverged" else "has completed"


def _of_skipped(place: Place, run: Run) -> Iterator[Violation]:
    if not run.reason:
        yield Violation((*place, "reason"), "a skipped run says why")
    for field in ("ranks", "stages", "epochs", "step_losses", "passes", "prediction", "printed"):
        if getattr(run, field):
            yield Violation((*place, field), "a skipped run has recorded nothing")
    if run.error is not None:
        yield Violation((*place, "error"), "a skipped run has no error")


def _of_failed(place: Place, run: Run) -> Iterator[Violation]:
    """The error of a run that failed, and the failures of its ranks."""
    if run.error is None:
        yield Violation((*place, "error"), f"a run that ended {run.status} has an error")
        return
    for index, rank in enumerate(run.ranks):
        where = (*place, "ranks", index)
        if (rank.failure is None) != (rank.status == "completed"):
            yield Violation((*where, "failure"), f"does not agree with the status {rank.status}")
        if rank.failure is not None and rank.failure.rank not in (rank.rank, None):
            said = f"is of rank {rank.failure.rank}, in the record of rank {rank.rank}"
            yield Violation((*where, "failure", "rank"), said)
    yield from unless_rank((*place, "error", "rank"), run.error.rank, run.world_size)
    if _failed_where_ranks_were_recorded(run):
        yield from _of_cause(place, run, run.error)


def _failed_where_ranks_were_recorded(run: Run) -> bool:
    """Whether the pass that failed is the one whose ranks are recorded.

    Ranks are those of the timed pass, else of the budgeted, else of the metered one, and the pass
    that fails is the last.
    """
    recorded = next((one for one in ("timed", "budgeted", "metered") if one in run.passes), None)
    return bool(run.passes) and run.passes[-1] == recorded


def _of_cause(place: Place, run: Run, error: Failure) -> Iterator[Violation]:
    """The error is the failure of its rank, and one of its kind has the status of the run."""
    alike = [r for r in run.ranks if r.failure is not None and r.failure.kind == error.kind]
    if run.status not in {rank.status for rank in alike}:
        said = f"{run.status}, which no rank has that failed by {error.kind}"
        yield Violation((*place, "status"), said)
    own = [rank for rank in alike if rank.rank == error.rank and rank.failure == error]
    if error.rank is not None and not own:
        said = f"is not the failure that rank {error.rank} has recorded"
        yield Violation((*place, "error"), said)


def _of_ranks(place: Place, run: Run) -> Iterator[Violation]:
    numbers = [rank.rank for rank in run.ranks]
    is_plan = run.nature == "simulated" and "num_ranks" in run.settings  # of some of these ranks
    if not is_each_rank(numbers, run.world_size) and not (
        is_plan and numbers == sorted({*numbers})
    ):
        said = f"has the ranks {numbers}, and world_size is {run.world_size}"
        yield Violation((*place, "ranks"), said)
        return
    for index, rank in enumerate(run.ranks):
        where = (*place, "ranks", index)
        if rank.memory is not None:
            yield from _of_memory((*where, "memory"), rank.memory, run.nature)
        yield from _of_collectives((*where, "collectives"), rank, run.world_size)


def _of_memory(place: Place, memory: Memory, nature: Nature) -> Iterator[Violation]:
    """Classes at the peak sum to it, no class exceeds its own maximum, and no phase the peak.

    A simulated plan keeps no maximum of each class.
    """
    known = [memory.peak_bytes is None, memory.at_peak is None]
    known += [memory.largest is None] if nature != "simulated" or memory.largest else []
    if len(set(known)) > 1:
        yield Violation((*place, "peak_bytes"), "is known without its classes, or they without it")
        return
    if memory.peak_bytes is None or memory.at_peak is None or memory.largest is None:
        return
    parts = _classes(memory.at_peak)
    if sum(parts.values()) != memory.peak_bytes:
        said = f"sums to {sum(parts.values())}, and peak_bytes is {memory.peak_bytes}"
        yield Violation((*place, "at_peak"), said)
    for name, most in _classes(memory.largest).items():
        if not parts[name] <= most <= memory.peak_bytes:
            said = f"is {most}, not between {parts[name]} at the peak and the peak itself"
            yield Violation((*place, "largest", name), said)
    if memory.phases and max(memory.phases.values()) != memory.peak_bytes:
        said = f"the largest is {max(memory.phases.values())}, and the peak {memory.peak_bytes}"
        yield Violation((*place, "phases"), said)
    if memory.phases and memory.phases.get(memory.peak_phase or "") != memory.peak_bytes:
        said = f"{memory.peak_phase!r} is not the phase that reached the peak"
        yield Violation((*place, "peak_phase"), said)


def _classes(classes: MemoryClasses) -> dict[str, int]:
    return dict(vars(classes))


def _of_collectives(place: Place, rank: RankRecord, world_size: int) -> Iterator[Violation]:
    seen: set[str] = set()
    for index, collective in enumerate(rank.collectives):
        where = (*place, index)
        if collective.operation in seen:
            yield Violation((*where, "operation"), f"{collective.operation} is listed twice")
        seen.add(collective.operation)
        if collective.transfers:
            yield from _of_transfers((*where, "transfers"), collective, rank.rank, world_size)


def _of_transfers(
    place: Place, collective: Collective, rank: int, world_size: int
) -> Iterator[Violation]:
    """Transfers sum to the totals of their operation, between ranks of the run."""
    for field in ("count", "bytes"):
        total = sum(getattr(one, field) for one in collective.transfers)
        if total != getattr(collective, field):
            said = f"sum to {total}, and {field} is {getattr(collective, field)}"
            yield Violation(place, f"the {field} of all {said}")
    for index, one in enumerate(collective.transfers):
        ends = (one.source, one.destination)
        if ends == (None, None):
            yield Violation((*place, index), "names neither a source nor a destination")
        for end in ends:
            yield from unless_rank((*place, index), end, world_size)
        if None not in ends and rank not in ends:
            yield Violation((*place, index), f"rank {rank} is neither of its ends")


def _of_epochs(place: Place, run: Run) -> Iterator[Violation]:
    numbers = [epoch.epoch for epoch in run.epochs]
    if numbers != list(range(1, len(numbers) + 1)):
        yield Violation((*place, "epochs"), f"are numbered {numbers}, not from 1 on")
    for index, epoch in enumerate(run.epochs):
        ranks = [one.rank for one in epoch.ranks]
        if len(set(ranks)) < len(ranks) or any(not 0 <= r < run.world_size for r in ranks):
            said = f"{ranks} are not ranks of {run.world_size}, each once"
            yield Violation((*place, "epochs", index, "ranks"), said)
    if run.validation is not None:
        where = (*place, "validation", "rank")
        yield from unless_rank(where, run.validation.rank, run.world_size)
