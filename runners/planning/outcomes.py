"""Run what a plan simulates on this machine's accelerator, and put both beside each other.

In: the question of a plan for one device, and its simulation. Out: lines. The simulated steps'
code runs with real tensors, under the same limit of the allocator.
"""

from __future__ import annotations

import time
from statistics import median
from typing import NamedTuple

import torch

from runners.meters.memory import MemoryMeter
from runners.planning.one_rank import take_steps
from runners.planning.question import PlanError, Question
from runners.planning.step import Step, repeats
from runners.planning.table import GIB
from runners.system import accelerator
from runners.traces.device_memory import Verdict, verdict
from runners.traces.plan_grid import GridRank

NUM_TIMED_STEPS = 3
# Between what is given out and what would be reserved without a limit, segments decide.
_EXPECTED: dict[Verdict, str] = {
    "fits": "complete",
    "marginal": "complete or to run out of memory",
    "no": "run out of memory",
}


class Outcome(NamedTuple):
    """What a configuration needed on a device.

    Attributes:
        phase: in which it ran out of memory; None where it completed.
        peak_bytes: of tensors, as the memory meter counts them.
        allocated_bytes, reserved_bytes: of the caching allocator; 0 on a CPU.
        step_seconds: the median of a few steps without a meter; None where it ran out of memory.
    """

    phase: str | None
    peak_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    step_seconds: float | None


def check() -> None:
    """Refuse what cannot run here.

    Raises:
        PlanError: there is no accelerator.
    """
    if not accelerator.num_devices():
        raise PlanError("outcomes need an accelerator; there is none here")


def outcome(question: Question, limit_bytes: float, device: torch.device) -> Outcome:
    """Take the simulated steps with real tensors; then a few without a meter, for their time."""
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total), device)
    meter = MemoryMeter(device)
    seconds, phase = None, None
    try:
        with torch.device(device), meter:
            step = take_steps(question, None, 0, device, meter)
        with torch.device(device):
            seconds = _seconds(step, repeats(question).simulated, device)
    except torch.OutOfMemoryError:
        phase = meter.phase
    counted = torch.cuda.memory_stats(device) if device.type == "cuda" else {}
    return Outcome(
        phase=phase,
        peak_bytes=meter.memory(None).peak_bytes or 0,
        allocated_bytes=counted.get("allocated_bytes.all.peak", 0),
        reserved_bytes=counted.get("reserved_bytes.all.peak", 0),
        step_seconds=seconds,
    )


def _seconds(step: Step, num_microbatches: int, device: torch.device) -> float:
    found = []
    for _ in range(NUM_TIMED_STEPS):
        start = time.perf_counter()
        step.run(num_microbatches)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(time.perf_counter() - start)
    return median(found)


def lines(simulated: GridRank, measured: Outcome, limit_bytes: float) -> list[str]:
    """A line for each number that both have, and one for the verdict."""
    ended = "completed" if measured.phase is None else f"ran out of memory in {measured.phase}"
    fits = verdict(limit_bytes, simulated.reserved_bytes, simulated.allocated_bytes)
    said = f"within {limit_bytes / GIB:.4g} GiB: simulated to {_EXPECTED[fits]}, {ended}"
    if measured.step_seconds is None:
        return [said]  # it ended before its peak
    reserved = min(simulated.reserved_bytes, round(limit_bytes))
    rows = []
    for name, ours, theirs in (
        ("peak", simulated.peak_bytes, measured.peak_bytes),
        ("allocated", simulated.allocated_bytes, measured.allocated_bytes),
        ("reserved", reserved, measured.reserved_bytes),
    ):
        error = f", {ours / theirs - 1:+.2%}" if theirs else ""
        rows.append(
            f"{name:<10}{ours / GIB:10.4f} GiB simulated{theirs / GIB:10.4f} measured{error}"
        )
    return [*rows, said, f"step: {measured.step_seconds:.3g} s, not simulated"]
