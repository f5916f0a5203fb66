"""Run what a plan simulates on this machine's accelerator, and put both beside each other.

In: the question of a plan for one device, and its simulation. Out: lines. The simulated steps'
code runs with real tensors, under the same limit of the allocator.
"""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import active_children, get_context
from typing import NamedTuple

import torch

from runners.meters.memory import MemoryMeter
from runners.planner.answers.answer import GIB
from runners.planner.answers.device_memory import Verdict, verdict
from runners.planner.answers.plan_grid import GridRank
from runners.planner.answers.question import Question
from runners.planner.simulated.one_rank import take_steps

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
    """

    phase: str | None
    peak_bytes: int
    allocated_bytes: int
    reserved_bytes: int


def outcome(question: Question, limit_bytes: float, device: torch.device) -> Outcome:
    """Take the simulated steps with real tensors."""
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total), device)
    meter = MemoryMeter(device)
    phase = None
    try:
        with torch.device(device), meter:
            take_steps(question, None, 0, device, meter)
    except torch.OutOfMemoryError:
        phase = meter.phase
    counted = torch.cuda.memory_stats(device) if device.type == "cuda" else {}
    return Outcome(
        phase=phase,
        peak_bytes=meter.memory(None).peak_bytes or 0,
        allocated_bytes=counted.get("allocated_bytes.all.peak", 0),
        reserved_bytes=counted.get("reserved_bytes.all.peak", 0),
    )


def outcome_apart(question: Question, limit_bytes: float, device: torch.device) -> Outcome:
    """The same in a new process: this one has started CUDA with every device hidden."""
    with ProcessPoolExecutor(1, get_context("spawn")) as apart:
        try:
            return apart.submit(outcome, question, limit_bytes, device).result()
        except KeyboardInterrupt:
            for steps in active_children():  # else this one waits until all are taken
                steps.kill()
            raise


def lines(simulated: GridRank, measured: Outcome, limit_bytes: float) -> list[str]:
    """A line for each number that both have, and one for the verdict."""
    ended = "completed" if measured.phase is None else f"ran out of memory in {measured.phase}"
    fits = verdict(limit_bytes, simulated.reserved_bytes, simulated.allocated_bytes)
    said = f"within {limit_bytes / GIB:.4g} GiB: simulated to {_EXPECTED[fits]}, {ended}"
    if measured.phase is not None:
        return [said]  # it ended before its peak
    rows = []
    for name in ("peak", "allocated", "reserved"):
        ours, theirs = (getattr(one, f"{name}_bytes") for one in (simulated, measured))
        if name == "reserved":
            ours = min(ours, round(limit_bytes))
        error = f", {ours / theirs - 1:+.2%}" if theirs else ""
        rows.append(
            f"{name:<10}{ours / GIB:10.4f} GiB simulated{theirs / GIB:10.4f} measured{error}"
        )
    return [*rows, said]
