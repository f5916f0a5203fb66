"""What every trace obeys beyond the types of its fields: a trace that does not was not measured.

In: a trace whose fields have their types. Out: a `Violation` for each record that contradicts
itself or its run, or that nothing can measure, with the path of the field. `files.py` refuses such
a trace when it is read. Pure; no torch.

`RULES` lists what the records of each kind obey, in order: of a record that breaks several rules,
the first is named. These are not laws. A law compares a run with a prediction and may turn out
false on some machine. An invariant follows from how the meters and the gathering write a trace, on
any machine. That one stage receives the shape that the stage before it returned is none: a stage
may load a batch of its own, or start from the parameters.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

from runners.traces.measured import Collective, Memory, SampledSeconds, Span, Timing, Transfer
from runners.traces.records import (
    Circumstances,
    Epoch,
    Layer,
    Model,
    RankRecord,
    Run,
    Stage,
    Trace,
)
from runners.traces.schema import Record

Place = tuple[str | int, ...]

TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
# Times are rounded to a tenth of a microsecond; at most four of them make a sum that is compared.
ROUNDING_SECONDS = 2.5e-7
WALL_ROUNDING_SECONDS = 5e-3  # the wall time is rounded to a millisecond, each pass
SHARE_ROUNDING = 5.1e-6  # a share is rounded to five digits, from times that were not rounded yet
LOSS_ROUNDING = 1e-6  # a mean of float32 losses may exceed the largest of them by so much
CODE_BYTES = 16 * 2**20  # resident pages of code, which a budget of data does not count
ENDED = ("completed", "diverged")
# The bytes of one element; a dtype that is not listed is not checked.
ELEMENT_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "float16": 2, "bfloat16": 2, "int16": 2, "float32": 4,
    "int32": 4, "float64": 8, "int64": 8, "complex64": 8,
}  # fmt: skip
_COUNTS = ("bytes", "count", "rank", "step", "epoch", "source", "destination", "world_size")
_TABLES = ("phases", "stages", "prediction")  # of bytes or of seconds, by a name
_MAY_BE_NEGATIVE = ("offset_seconds",)  # of one clock against another


class Violation(NamedTuple):
    """A statement of a trace that cannot be true: the path of its field, and what is wrong."""

    path: Place
    message: str


class Rule(NamedTuple):
    """What the records of one kind obey.

    Attributes:
        field: that a message names; dots lead into records.
        wrong: the message where the rule is broken.
        holds: of such a record and its run.
    """

    field: str
    wrong: str
    holds: Callable[[Any, Run], bool]


def violations(trace: Trace) -> Iterator[Violation]:
    """The first rule that each record of a trace breaks, in the order of its fields."""
    if not _is_time(trace.recorded_at):
        said = f"{trace.recorded_at!r} is not a UTC time such as 2026-01-31T09:30:00Z"
        yield Violation(("recorded_at",), said)
    for name, run in trace.runs.items():
        yield from _of_part(("runs", name), run, "", run)
        if run.status != "skipped" and not _fits_cores(
            run, run.circumstances or trace.circumstances
        ):
            said = "does not follow from world_size and the cores of affinity"
            yield Violation(("runs", name, "timing", "oversubscribed"), said)


def beyond(trace: Trace, memory_bytes: int) -> Iterator[Violation]:
    """The kernel's peaks in a trace that exceed the main memory of the machine it names."""
    for name, run in trace.runs.items():
        for place, rank in enumerate(run.ranks):
            if rank.memory and (rank.memory.kernel_peak_bytes or 0) > memory_bytes:
                path = ("runs", name, "ranks", place, "memory", "kernel_peak_bytes")
                yield Violation(path, "is more than the machine has")


def _of_part(place: Place, part: object, name: str, run: Run) -> Iterator[Violation]:
    """What is wrong with a part of a run: a record, a table, a list or a number.

    The name of a field says what its number measures; elements of a list or of a table of numbers
    are what the list is. Times that an experiment works out itself, differences and fitted
    constants, may be negative.
    """
    if type(part) in (int, float):
        fault = _fault(name, part, run)  # type: ignore[arg-type] # int or float
        if fault and place[2:4] != ("timing", "measures"):
            yield Violation(place, fault)
        return
    for field, wrong, holds in RULES.get(type(part), ()) if isinstance(part, Record) else ():
        if not holds(part, run):
            yield Violation((*place, *field.split(".")), wrong)
            break
    for key, inside in _inside(part):
        is_table = name in _TABLES and type(inside) in (int, float)
        is_named = isinstance(key, str) and not is_table
        own = key if is_named else f"{name}_bytes" if is_table else name
        yield from _of_part((*place, key), inside, str(own), run)


def _inside(part: object) -> Iterable[tuple[str | int, object]]:
    if isinstance(part, list):
        return enumerate(part)
    if isinstance(part, dict):
        return part.items()
    return vars(part).items() if isinstance(part, Record) else ()


def _fault(name: str, value: float, run: Run) -> str | None:
    """What is wrong with a number, by its name.

    Amounts are not negative, shares lie between 0 and 1, and a rank is one of the run.
    """
    if name in ("rank", "source", "destination") and value >= run.world_size:
        return f"there is no rank {value} among {run.world_size}"
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


def _is_time(text: str) -> bool:
    try:
        datetime.strptime(text, TIME_FORMAT)  # noqa: DTZ007 the Z says UTC
    except ValueError:
        return False
    return True


def _fits_cores(run: Run, under: Circumstances) -> bool:
    """Whether a run on CPU is oversubscribed exactly where it has more ranks than cores."""
    if run.device != "cpu" or not under.affinity:
        return True
    ranges = [part.split("-") for part in under.affinity.split(",")]
    num_cores = sum(int(ends[-1]) - int(ends[0]) + 1 for ends in ranges)
    return run.timing.oversubscribed == (run.world_size > num_cores)


def _each_once(ranks: Sequence[int], run: Run) -> bool:
    """Whether these are ranks of a run, none of them twice."""
    return len(set(ranks)) == len(ranks) and all(0 <= rank < run.world_size for rank in ranks)


def _has_its_ranks(run: Run) -> bool:
    """All ranks, each once; a simulated plan has some of them."""
    numbers = [rank.rank for rank in run.ranks]
    if run.nature == "simulated" and "num_ranks" in run.settings:
        return numbers == sorted({*numbers})
    return len(numbers) == run.world_size and _each_once(numbers, run)


def _is_error_of_its_rank(run: Run) -> bool:
    """The error is the failure of its rank, and one of its kind has the status of the run.

    Ranks are those of the timed pass, else of the budgeted, else of the metered one, and the pass
    that fails is the last: where it is another one, its ranks are not recorded.
    """
    recorded = next((one for one in ("timed", "budgeted", "metered") if one in run.passes), None)
    if run.error is None or run.passes[-1] != recorded:
        return True
    alike = [r for r in run.ranks if r.failure is not None and r.failure.kind == run.error.kind]
    is_own = any(rank.rank == run.error.rank and rank.failure == run.error for rank in alike)
    return run.status in {rank.status for rank in alike} and (run.error.rank is None or is_own)


def _sends_what_is_received(run: Run) -> bool:
    """What one rank sends another, the other receives: as many calls and bytes in the step."""
    moved: dict[str, Counter[object]] = {"send": Counter(), "recv": Counter()}
    for rank in run.ranks:
        for collective in rank.collectives:
            for one in collective.transfers if collective.operation in moved else ():
                for field in ("count", "bytes"):
                    ends = one.source, one.destination, field
                    moved[collective.operation][ends] += getattr(one, field)
    return run.status not in ENDED or moved["send"] == moved["recv"]


def _epochs_agree_with_steps(run: Run) -> bool:
    """The loss of an epoch lies among those of its steps, where each step is kept."""
    num_steps, left = divmod(len(run.step_losses), max(len(run.epochs), 1))
    if left or not num_steps:
        return True
    parts = (run.step_losses[n * num_steps :][:num_steps] for n in range(len(run.epochs)))
    return all(_is_among(e.loss, part) for e, part in zip(run.epochs, parts, strict=True))


def _is_among(mean: float | None, losses: Iterable[float | None]) -> bool:
    """Whether a mean lies between the least and the largest; where all of them are known."""
    known = list(losses)
    numbers = [loss for loss in known if loss is not None]
    if mean is None or not numbers or len(numbers) < len(known):
        return True
    slack = LOSS_ROUNDING * max(1.0, abs(mean))
    return min(numbers) - slack <= mean <= max(numbers) + slack


def _stays_within_wall_time(run: Run) -> bool:
    """Stages, steps, what a prediction's steps took and the timeline lasted no longer than all."""
    timing = run.timing
    lasted = [sum(timing.stages.values()), sum(timing.prediction.values())]
    lasted += [sum(timing.step.samples)] if timing.step else []
    lasted += [span.end_seconds for span in timing.timeline]
    return run.nature == "simulated" or max(lasted) <= timing.wall_seconds + WALL_ROUNDING_SECONDS


def _fits_shape(shape: Sequence[int], size: int, dtype: str) -> bool:
    element = ELEMENT_BYTES.get(dtype.removeprefix("torch."))
    return element is None or math.prod(shape) * element == size


def _knows_classes(memory: Memory, run: Run) -> bool:
    """A simulated plan keeps no maximum of each class."""
    known = [memory.peak_bytes is None, memory.at_peak is None]
    known += [memory.largest is None] if run.nature != "simulated" or memory.largest else []
    return len(set(known)) == 1


def _largest_of_classes(memory: Memory) -> bool:
    """No class exceeds the peak, nor what it held there its own maximum."""
    if memory.peak_bytes is None or memory.at_peak is None or memory.largest is None:
        return True
    at_peak, peak = vars(memory.at_peak), memory.peak_bytes
    return all(at_peak[name] <= most <= peak for name, most in vars(memory.largest).items())


def _parameters_below_peak(rank: RankRecord, run: Run) -> bool:
    model, memory = run.model, rank.memory
    if model is None or rank.num_parameters is None or memory is None or memory.peak_bytes is None:
        return True
    return rank.num_parameters * model.bytes <= memory.peak_bytes * model.num_parameters


def _kernel_within_budget(rank: RankRecord, run: Run) -> bool:
    kernel = rank.memory.kernel_peak_bytes if rank.memory else None
    return None in (kernel, run.budget_bytes) or kernel <= run.budget_bytes + CODE_BYTES  # type: ignore[operator]


def _follows_from_samples(times: SampledSeconds, _: Run) -> bool:
    try:
        whole = SampledSeconds.of(times.samples)
    except ValueError:  # finite samples, whose quartiles are not
        return False
    fields = ("first_quartile_seconds", "median_seconds", "third_quartile_seconds")
    return times.num_samples == whole.num_samples and all(
        math.isclose(getattr(times, f), getattr(whole, f), rel_tol=1e-6, abs_tol=ROUNDING_SECONDS)
        for f in fields
    )


def _spans(timing: Timing) -> dict[int, list[Span]]:
    found: dict[int, list[Span]] = defaultdict(list)
    for span in timing.timeline:
        found[span.rank].append(span)
    return found


def _whole(timing: Timing) -> float:
    """How long the step of the timeline lasted."""
    return max((span.end_seconds for span in timing.timeline), default=0.0)


def _timeline_fills_the_step(timing: Timing, _: Run) -> bool:
    """Spans of a rank follow each other from the beginning of the step to its end."""
    for spans in _spans(timing).values():
        borders = [0.0, *(end for one in spans for end in (one.start_seconds, one.end_seconds))]
        borders.append(_whole(timing))
        gaps = (b - a for a, b in list(pairwise(borders))[::2])
        are_backwards = any(one.end_seconds < one.start_seconds for one in spans)
        if are_backwards or any(abs(gap) > ROUNDING_SECONDS for gap in gaps):
            return False
    return True


def _rank_times_fill_the_step(timing: Timing, _: Run) -> bool:
    """Compute, communication and waiting of a rank sum to the step, of which a share is waiting."""
    whole = _whole(timing)
    return all(
        abs(one.compute_seconds + one.communication_seconds + one.waiting_seconds - whole)
        <= ROUNDING_SECONDS
        and abs(one.waiting_share * whole - one.waiting_seconds)
        <= SHARE_ROUNDING * whole + ROUNDING_SECONDS
        for one in timing.ranks
    )


def _all_ranks_or_none(ranks: Iterable[int], run: Run) -> bool:
    numbers = list(ranks)
    return not numbers or (len(numbers) == run.world_size and _each_once(numbers, run))


def _sum_to(whole: Record, parts: Sequence[Record], field: str) -> bool:
    """Whether a field of the parts sums to that of the whole; where there are parts."""
    return not parts or sum(getattr(one, field) for one in parts) == getattr(whole, field)


def _held_agrees(stage: Stage, run: Run) -> bool:
    """What each rank held has the bytes of its shape; the rank shown held what the stage says."""
    shown = (stage.shape_in, stage.shape_out, stage.bytes)
    return _each_once([held.rank for held in stage.ranks], run) and all(
        _fits_shape(held.shape_out, held.bytes, stage.dtype)
        and (held.rank != stage.rank or (held.shape_in, held.shape_out, held.bytes) == shown)
        for held in stage.ranks
    )


def _unless_skipped(holds: Callable[[Run], bool]) -> Callable[[Run, Run], bool]:
    return lambda run, _: run.status == "skipped" or holds(run)


def _nothing_recorded(field: str) -> Rule:
    """Of a run that was skipped."""
    wrong = "a skipped run has recorded nothing"
    return Rule(field, wrong, lambda run, _: run.status != "skipped" or not getattr(run, field))


RULES: dict[type[Record], Sequence[Rule]] = {
    Run: (
        Rule("reason", "a run has a reason exactly where it was skipped",
             lambda run, _: (run.status == "skipped") == bool(run.reason)),
        *map(_nothing_recorded, ("ranks", "stages", "epochs", "step_losses", "passes",
                                 "prediction", "printed", "error")),
        Rule("backend", "nccl communicates on CUDA alone",
             lambda run, _: run.backend != "nccl" or run.device == "cuda"),
        Rule("passes", "a run that was not skipped has passes, each once",
             _unless_skipped(lambda run: 0 < len(set(run.passes)) == len(run.passes))),
        Rule("ranks", "are not as many as world_size, each once", _unless_skipped(_has_its_ranks)),
        Rule("error", "stands exactly where a run neither completed nor diverged",
             _unless_skipped(lambda run: (run.error is None) == (run.status in ENDED))),
        Rule("non_finite", "a run has diverged exactly where a value was not finite",
             lambda run, _: run.status not in ENDED
             or (run.status == "diverged") == bool(run.non_finite)),
        Rule("error", "is not the failure that its rank has recorded, with the run's status",
             _unless_skipped(_is_error_of_its_rank)),
        Rule("timing.wall_seconds", "is less than the timeout after which the run ended",
             lambda run, _: run.error is None or run.error.kind != "timed_out"
             or run.timing.wall_seconds >= _timeout(run)),
        Rule("timing.wall_seconds", "is less than the stages, the steps or the timeline took",
             _unless_skipped(_stays_within_wall_time)),
        Rule("epochs", "are not numbered from 1 on",
             lambda run, _: all(n == e.epoch for n, e in enumerate(run.epochs, start=1))),
        Rule("step_losses", "do not have the loss of each epoch among those of its steps",
             lambda run, _: _epochs_agree_with_steps(run)),
        Rule("validation.loss", "is not the last epoch's validation_loss",
             lambda run, _: run.validation is None or not run.epochs
             or _is_among(run.validation.loss, [run.epochs[-1].validation_loss])),
        Rule("ranks", "one receives from another what that one did not send, or the reverse",
             lambda run, _: _sends_what_is_received(run)),
        Rule("stages", "lists a name twice",
             lambda run, _: len({stage.name for stage in run.stages}) == len(run.stages)),
        Rule("timing.stages", "times a stage that the run has not",
             lambda run, _: {*run.timing.stages} <= {stage.name for stage in run.stages}),
        Rule("timing.prediction", "times a step that the run has not",
             lambda run, _: {*run.timing.prediction} <= {step.name for step in run.prediction}),
    ),
    RankRecord: (
        Rule("status", "failed, in a run that did not",
             lambda rank, run: run.status not in ENDED or rank.status == "completed"),
        Rule("failure", "does not agree with the status of its rank",
             lambda rank, _: (rank.failure is None) == (rank.status == "completed")),
        Rule("failure.rank", "is another than the rank that has recorded the failure",
             lambda rank, _: rank.failure is None or rank.failure.rank in (rank.rank, None)),
        Rule("num_parameters", "is more than the whole model has",
             lambda rank, run: run.model is None or rank.num_parameters is None
             or rank.num_parameters <= run.model.num_parameters),
        Rule("memory.peak_bytes", "is less than the parameters that the rank holds",
             _parameters_below_peak),
        Rule("memory.kernel_peak_bytes", "is more than the budget", _kernel_within_budget),
        Rule("collectives", "lists an operation twice",
             lambda rank, _: len({c.operation for c in rank.collectives}) == len(rank.collectives)),
        Rule("collectives", "has a transfer between two other ranks",
             lambda rank, _: all(None in ends or rank.rank in ends for c in rank.collectives
                                 for t in c.transfers for ends in [(t.source, t.destination)])),
    ),
    Memory: (
        Rule("peak_bytes", "is known without its classes, or they without it", _knows_classes),
        Rule("at_peak", "does not sum to peak_bytes",
             lambda m, _: m.at_peak is None or sum(vars(m.at_peak).values()) == m.peak_bytes),
        Rule("largest", "has a class that exceeds the peak, or less than the class held there",
             lambda memory, _: _largest_of_classes(memory)),
        Rule("phases", "the largest is not peak_bytes",
             lambda m, _: None in (m.peak_bytes, m.at_peak) or not m.phases
             or max(m.phases.values()) == m.peak_bytes),
        Rule("peak_phase", "is not the phase that reached the peak",
             lambda m, _: None in (m.peak_bytes, m.at_peak) or not m.phases
             or m.phases.get(m.peak_phase) == m.peak_bytes),
    ),
    Collective: (
        Rule("transfers", "do not sum to the bytes of the operation",
             lambda one, _: _sum_to(one, one.transfers, "bytes")),
        Rule("transfers", "do not sum to the count of the operation",
             lambda one, _: _sum_to(one, one.transfers, "count")),
    ),
    Transfer: (
        Rule("source", "names neither a source nor a destination",
             lambda one, _: (one.source, one.destination) != (None, None)),
    ),
    Epoch: (
        Rule("ranks", "are not ranks of the run, each once",
             lambda epoch, run: _each_once([one.rank for one in epoch.ranks], run)),
        Rule("loss", "is not among the losses of the ranks",
             lambda epoch, run: len(epoch.ranks) < run.world_size
             or _is_among(epoch.loss, (one.loss for one in epoch.ranks))),
    ),
    Model: (
        Rule("num_parameters", "is not the sum of the layers",
             lambda model, _: _sum_to(model, model.layers, "num_parameters")),
        Rule("bytes", "is not the sum of the layers",
             lambda model, _: _sum_to(model, model.layers, "bytes")),
        Rule("bytes", "does not follow from num_parameters and dtype",
             lambda model, _: _fits_shape([model.num_parameters], model.bytes, model.dtype)),
    ),
    Layer: (
        Rule("weight_shape", "holds more values than num_parameters says",
             lambda layer, _: not layer.weight_shape
             or math.prod(layer.weight_shape) <= layer.num_parameters),
    ),
    Stage: (
        Rule("bytes", "does not follow from shape_out and dtype",
             lambda stage, _: _fits_shape(stage.shape_out, stage.bytes, stage.dtype)),
        Rule("values", "holds more values than shape_out",
             lambda stage, _: len(stage.values) <= math.prod(stage.shape_out)),
        Rule("ranks", "differ from their shapes, or from the stage itself", _held_agrees),
    ),
    SampledSeconds: (
        Rule("samples", "holds no sample", lambda times, _: bool(times.samples)),
        Rule("median_seconds", "does not follow from samples, or another summary does not",
             _follows_from_samples),
    ),
    Timing: (
        Rule("clocks", "are not one of each rank",
             lambda t, run: _all_ranks_or_none((clock.rank for clock in t.clocks), run)),
        Rule("clocks", "has a clock of rank 0 that lies off itself",
             lambda t, _: not any(clock.rank == 0 and (clock.offset_seconds or clock.error_seconds)
                                  for clock in t.clocks)),
        Rule("ranks", "are not those of the timeline, each once",
             lambda t, run: {*_spans(t)} == {one.rank for one in t.ranks}
             and _all_ranks_or_none((one.rank for one in t.ranks), run)),
        Rule("timeline", "does not fill the step, span by span", _timeline_fills_the_step),
        Rule("ranks", "do not fill the step with compute, communication and waiting",
             _rank_times_fill_the_step),
    ),
}  # fmt: skip


def _timeout(run: Run) -> float:
    """Seconds after which a collective of this run gives up, where its settings say so."""
    timeout = run.settings.get("timeout_seconds")
    return timeout if isinstance(timeout, int | float) else 0.0
