"""What every trace obeys beyond the types of its fields: a trace that does not was not measured.

In: a trace whose fields have their types. Out: a `Violation` for each record that contradicts
itself or its run, with the path of the field. `files.py` refuses such a trace when it is read.
Pure; no torch.

These are not laws. A law compares a run with a prediction and may turn out false on some machine.
An invariant follows from how the meters and the gathering write a trace, on any machine. What
somebody could forge beyond them, `reproduce` finds: it measures a number again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from runners.traces.measured import Memory, SampledSeconds
from runners.traces.records import Circumstances, Epoch, RankRecord, Run, Trace

Place = tuple[str | int, ...]

# Times are rounded to a tenth of a microsecond.
ROUNDING_SECONDS = 2.5e-7
WALL_ROUNDING_SECONDS = 5e-3  # the wall time is rounded to a millisecond, each pass
LOSS_ROUNDING = 1e-6  # a mean of float32 losses may exceed the largest of them by so much
CODE_BYTES = 16 * 2**20  # resident pages of code, which a budget of data does not count
ENDED = ("completed", "diverged")


class Violation(NamedTuple):
    """A statement of a trace that cannot be true: the path of its field, and what is wrong."""

    path: Place
    message: str


class Rule(NamedTuple):
    """What each run obeys.

    Attributes:
        field: that a message names.
        wrong: the message where the rule is broken.
        holds: of a run that was not skipped.
    """

    field: Place
    wrong: str
    holds: Callable[[Run], bool]


def violations(trace: Trace) -> Iterator[Violation]:
    """The rules that a trace breaks, run by run; a run that was skipped has recorded nothing."""
    for name, run in trace.runs.items():
        if run.status == "skipped":
            continue
        for field, wrong, holds in RULES:
            if not holds(run):
                yield Violation(("runs", name, *field), wrong)
        for rank, record in enumerate(run.ranks):
            for field, wrong in _of_rank(record, run):
                yield Violation(("runs", name, "ranks", rank, *field), wrong)
        if not _fits_cores(run, run.circumstances or trace.circumstances):
            said = "does not follow from world_size and the cores of affinity"
            yield Violation(("runs", name, "timing", "oversubscribed"), said)


def beyond(trace: Trace, memory_bytes: int) -> Iterator[Violation]:
    """The kernel's peaks in a trace that exceed the main memory of the machine it names."""
    for name, run in trace.runs.items():
        for place, rank in enumerate(run.ranks):
            if rank.memory and (rank.memory.kernel_peak_bytes or 0) > memory_bytes:
                path = ("runs", name, "ranks", place, "memory", "kernel_peak_bytes")
                yield Violation(path, "is more than the machine has")


def _of_rank(rank: RankRecord, run: Run) -> Iterator[tuple[Place, str]]:
    """What is wrong with the record of one rank."""
    model, memory = run.model, rank.memory or Memory()
    peak, held, kernel = memory.peak_bytes, rank.num_parameters, memory.kernel_peak_bytes
    if model is not None and held is not None:
        if held > model.num_parameters:
            yield ("num_parameters",), "is more than the whole model has"
        elif peak is not None and held * model.bytes > peak * model.num_parameters:
            yield ("memory", "peak_bytes"), "is less than the parameters that the rank holds"
    if memory.at_peak is not None and sum(vars(memory.at_peak).values()) != peak:
        yield ("memory", "at_peak"), "does not sum to peak_bytes"
    if kernel and run.budget_bytes and kernel > run.budget_bytes + CODE_BYTES:
        yield ("memory", "kernel_peak_bytes"), "is more than the budget"


def _fits_cores(run: Run, under: Circumstances) -> bool:
    """Whether a run on CPU is oversubscribed exactly where it has more ranks than cores."""
    if run.device != "cpu" or not under.affinity:
        return True
    ranges = [part.split("-") for part in under.affinity.split(",")]
    num_cores = sum(int(ends[-1]) - int(ends[0]) + 1 for ends in ranges)
    return run.timing.oversubscribed == (run.world_size > num_cores)


def _has_its_ranks(run: Run) -> bool:
    """All ranks, in order; a simulated plan has some of them."""
    numbers = [rank.rank for rank in run.ranks]
    if run.nature == "simulated" and "num_ranks" in run.settings:
        return numbers == sorted({*numbers})
    return len(numbers) == run.world_size and numbers == list(range(run.world_size))


def _lasted_its_timeout(run: Run) -> bool:
    if run.error is None or run.error.kind != "timed_out":
        return True
    timeout = run.settings.get("timeout_seconds")
    return run.timing.wall_seconds >= (timeout if isinstance(timeout, int | float) else 0.0)


def _stays_within_wall_time(run: Run) -> bool:
    """Stages, steps, what a prediction's steps took and the timeline lasted no longer than all."""
    timing = run.timing
    lasted = [sum(timing.stages.values()), sum(timing.prediction.values())]
    lasted += [sum(timing.step.samples)] if timing.step else []
    lasted += [span.end_seconds for span in timing.timeline]
    return run.nature == "simulated" or max(lasted) <= timing.wall_seconds + WALL_ROUNDING_SECONDS


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


def _agrees_with_its_ranks(epoch: Epoch, run: Run) -> bool:
    losses = [one.loss for one in epoch.ranks]
    return len(losses) < run.world_size or _is_among(epoch.loss, losses)


def _is_among(mean: float | None, losses: Iterable[float | None]) -> bool:
    """Whether a mean lies between the least and the largest; where all of them are known."""
    known = list(losses)
    numbers = [loss for loss in known if loss is not None]
    if mean is None or not numbers or len(numbers) < len(known):
        return True
    slack = LOSS_ROUNDING * max(1.0, abs(mean))
    return min(numbers) - slack <= mean <= max(numbers) + slack


def _times_are_summed_up(run: Run) -> bool:
    times = [*run.timing.measures.values(), *([run.timing.step] if run.timing.step else [])]
    return all(map(_follows_from_samples, times))


def _follows_from_samples(times: SampledSeconds) -> bool:
    try:
        whole = SampledSeconds.of(times.samples)
    except ValueError:  # no samples, or quartiles that are not finite
        return False
    fields = ("first_quartile_seconds", "median_seconds", "third_quartile_seconds")
    return times.num_samples == whole.num_samples and all(
        math.isclose(getattr(times, f), getattr(whole, f), rel_tol=1e-6, abs_tol=ROUNDING_SECONDS)
        for f in fields
    )


RULES = (
    Rule(
        ("backend",),
        "nccl communicates on CUDA alone",
        lambda run: run.backend != "nccl" or run.device == "cuda",
    ),
    Rule(("ranks",), "are not as many as world_size, each once", _has_its_ranks),
    Rule(
        ("error",),
        "stands exactly where a run neither completed nor diverged",
        lambda run: (run.error is None) == (run.status in ENDED),
    ),
    Rule(
        ("ranks",),
        "one receives from another what that one did not send, or the reverse",
        _sends_what_is_received,
    ),
    Rule(
        ("timing", "wall_seconds"),
        "is less than the timeout after which the run ended",
        _lasted_its_timeout,
    ),
    Rule(
        ("timing", "wall_seconds"),
        "is less than the stages, the steps or the timeline took",
        _stays_within_wall_time,
    ),
    Rule(("timing",), "has a median or quartile not of its samples", _times_are_summed_up),
    Rule(
        ("step_losses",),
        "do not have the loss of each epoch among those of its steps",
        _epochs_agree_with_steps,
    ),
    Rule(
        ("epochs",),
        "have a loss that is not among those of the ranks",
        lambda run: all(_agrees_with_its_ranks(epoch, run) for epoch in run.epochs),
    ),
)
