"""`python -m runners run --dry`: what would run, how long and with how much memory. Nothing runs.

In: what is pending. Out: a line an experiment and one for all. How long a run takes, and how much
memory its ranks take together, is read off its last trace here, however stale; else off the
reference machine's. What neither knows is counted as unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from runners.measuring.pending import Pending
from runners.traces.files import TraceError, read
from runners.traces.records import Run


class Estimate(NamedTuple):
    """What some runs would take.

    Attributes:
        num_runs: that would run.
        seconds: of those that are known.
        num_unknown: runs of which nobody knows how long they take.
        peak_bytes: the most that the ranks of one run hold together; 0 where none is known.
    """

    num_runs: int
    seconds: float
    num_unknown: int
    peak_bytes: int


def estimated(waiting: Pending, where: Path, traces: Path) -> Estimate:
    """What an experiment would take.

    Args:
        waiting: what of it would run.
        where: this machine's folder.
        traces: the folder of all machines' folders.
    """
    known = _last_runs([where, *sorted(traces.glob("reference-*"))], waiting.experiment.name)
    last = [known[run] for run in waiting.measured if run in known]
    real = [run for run in last if run.nature != "simulated"]  # fake tensors take no memory
    return Estimate(
        len(waiting.measured),
        sum(run.timing.wall_seconds for run in last),
        len(waiting.measured) - len(last),
        max(map(_peak_bytes, real), default=0),
    )


def _last_runs(folders: Iterable[Path], name: str) -> dict[str, Run]:
    """Each run that ran, from the first folder that has it."""
    found: dict[str, Run] = {}
    for folder in folders:
        try:
            runs = read(folder / f"{name}.json").runs
        except TraceError:
            continue
        found = {**{n: run for n, run in runs.items() if run.status != "skipped"}, **found}
    return found


def _peak_bytes(run: Run) -> int:
    """What the ranks of a run held together, each at its own peak."""
    known = [rank.memory for rank in run.ranks if rank.memory is not None]
    return sum(memory.peak_bytes or memory.kernel_peak_bytes or 0 for memory in known)


def together(estimates: Iterable[Estimate]) -> Estimate:
    """One after another: seconds add up, memory is the most of any."""
    num_runs, seconds, num_unknown, peaks = zip(*estimates, strict=True)
    return Estimate(sum(num_runs), sum(seconds), sum(num_unknown), max(peaks))


def said(name: str, reason: str, estimate: Estimate) -> str:
    """One line for a person."""
    unknown = f" + {estimate.num_unknown} of unknown length" if estimate.num_unknown else ""
    peak = f"{estimate.peak_bytes / 2**20:8.0f}" if estimate.peak_bytes else "       ?"
    length = f"{estimate.seconds:7.1f} s{unknown}"
    return f"{name:<20} {estimate.num_runs:>3} runs {length} {peak} MiB  {reason}".rstrip()
