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
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from runners.traces.measured import Memory, SampledSeconds
from runners.traces.records import Circumstances, RankRecord, Run, Trace

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


def violations(trace: Trace) -> Iterator[Violation]:
    """What contradicts itself in a trace, run by run; a skipped run has recorded nothing."""
    for name, run in trace.runs.items():
        if run.status == "skipped":
            continue
        for field, wrong in (*_of_run(run), *_of_times(run), *_of_losses(run)):
            yield Violation(("runs", name, *field), wrong)
        for rank, record in enumerate(run.ranks):
            for field, wrong in _of_rank(record, run):
                yield Violation(("runs", name, "ranks", rank, *field), wrong)
        nodes, is_several, _ = trace.machine.partition("-nodes-")  # as `runners.cluster` names them
        num_nodes = int(nodes) if is_several else 1
        if not _fits_cores(run, run.circumstances or trace.circumstances, num_nodes):
            said = "does not follow from world_size and the cores of affinity"
            yield Violation(("runs", name, "timing", "oversubscribed"), said)


def beyond(trace: Trace, memory_bytes: int) -> Iterator[Violation]:
    """The kernel's peaks in a trace that exceed the main memory of the machine it names."""
    for name, run in trace.runs.items():
        for place, rank in enumerate(run.ranks):
            if rank.memory and (rank.memory.kernel_peak_bytes or 0) > memory_bytes:
                path = ("runs", name, "ranks", place, "memory", "kernel_peak_bytes")
                yield Violation(path, "is more than the machine has")


def _of_run(run: Run) -> Iterator[tuple[Place, str]]:
    if run.backend == "nccl" and run.device != "cuda":
        yield ("backend",), "nccl communicates on CUDA alone"
    if not _has_its_ranks(run):
        yield ("ranks",), "are not as many as world_size, each once"
    if (run.error is None) != (run.status in ENDED):
        yield ("error",), "stands exactly where a run neither completed nor diverged"
    if not _sends_what_is_received(run):
        yield ("ranks",), "one receives from another what that one did not send, or the reverse"


def _of_times(run: Run) -> Iterator[tuple[Place, str]]:
    timing, timeout = run.timing, run.settings.get("timeout_seconds")
    has_timed_out = run.error is not None and run.error.kind == "timed_out"
    if has_timed_out and isinstance(timeout, int | float) and timing.wall_seconds < timeout:
        yield ("timing", "wall_seconds"), "is less than the timeout after which the run ended"
    lasted = [sum(timing.stages.values()), sum(timing.prediction.values())]
    lasted += [sum(timing.step.samples)] if timing.step else []
    lasted += [span.end_seconds for span in timing.timeline]
    if run.nature != "simulated" and max(lasted) > timing.wall_seconds + WALL_ROUNDING_SECONDS:
        said = "is less than the stages, the steps or the timeline took"
        yield ("timing", "wall_seconds"), said
    times = [*timing.measures.values(), *([timing.step] if timing.step else [])]
    if not all(map(_follows_from_samples, times)):
        yield ("timing",), "has a median or quartile not of its samples"


def _of_losses(run: Run) -> Iterator[tuple[Place, str]]:
    """Losses of epochs lie among those of their steps and ranks, where each of these is kept."""
    num_steps, left = divmod(len(run.step_losses), max(len(run.epochs), 1))
    for n, epoch in enumerate(run.epochs):
        of_ranks = [one.loss for one in epoch.ranks]
        if len(of_ranks) >= run.world_size and not _is_among(epoch.loss, of_ranks):
            yield ("epochs", n, "loss"), "is not among the losses of the ranks"
        if not left and not _is_among(epoch.loss, run.step_losses[n * num_steps :][:num_steps]):
            yield ("step_losses",), "do not have the loss of each epoch among those of its steps"


def _is_among(mean: float | None, losses: Sequence[float | None]) -> bool:
    """Whether a mean lies between the least and the largest; where all of them are known."""
    numbers = [loss for loss in losses if loss is not None]
    if mean is None or not numbers or len(numbers) < len(losses):
        return True
    slack = LOSS_ROUNDING * max(1.0, abs(mean))
    return min(numbers) - slack <= mean <= max(numbers) + slack


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


def _fits_cores(run: Run, under: Circumstances, num_nodes: int) -> bool:
    """Whether a run on CPU is oversubscribed exactly where nodes have more ranks than cores."""
    if run.device != "cpu" or not under.affinity:
        return True
    ranges = [part.split("-") for part in under.affinity.split(",")]
    num_cores = sum(int(ends[-1]) - int(ends[0]) + 1 for ends in ranges)
    return run.timing.oversubscribed == (run.world_size > num_cores * num_nodes)


def _has_its_ranks(run: Run) -> bool:
    """All ranks, in order; a simulated plan has some of them."""
    numbers = [rank.rank for rank in run.ranks]
    if run.nature == "simulated" and "num_ranks" in run.settings:
        return numbers == sorted({*numbers})
    return len(numbers) == run.world_size and numbers == list(range(run.world_size))


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
