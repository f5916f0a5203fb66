"""`python -m runners run --dry`: what would run, how long and with how much memory. Nothing runs.

In: what is pending. Out: a line an experiment and one for all. How long a run takes, and how much
memory its ranks take together, is read off its last trace here, however stale; else off the
reference machine's. What neither knows is counted as unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from runners.measuring.pending import Pending
from runners.traces.files import TraceError, read
from runners.traces.records import Run, Trace


@dataclass(frozen=True)
class Estimate:
    """What some runs would take.

    Attributes:
        num_runs: that would run.
        seconds: of those that are known.
        num_unknown: runs of which nobody knows how long they take.
        peak_bytes: the most that the ranks of one run hold together; None where none is known.
    """

    num_runs: int
    seconds: float
    num_unknown: int
    peak_bytes: int | None


def estimated(waiting: Pending, where: Path, traces: Path) -> Estimate:
    """What an experiment would take.

    Args:
        waiting: what of it would run.
        where: this machine's folder.
        traces: the folder of all machines' folders.
    """
    known = _last_runs([where, *sorted(traces.glob("reference-*"))], waiting.experiment.name)
    last = [known[run] for run in waiting.measured if run in known]
    ran = [run for run in last if run.nature != "simulated"]  # fake tensors take no memory
    peaks = map(_peak_bytes, ran)
    return Estimate(
        len(waiting.measured),
        sum(run.timing.wall_seconds for run in last),
        len(waiting.measured) - len(last),
        max((peak for peak in peaks if peak is not None), default=None),
    )


def _last_runs(folders: Iterable[Path], name: str) -> dict[str, Run]:
    """Each run that ran, from the first folder that has it."""
    found: dict[str, Run] = {}
    for folder in folders:
        trace = _read(folder / f"{name}.json")
        for run_name, run in trace.runs.items() if trace else ():
            if run.status != "skipped":
                found.setdefault(run_name, run)
    return found


def _read(path: Path) -> Trace | None:
    try:
        return read(path)
    except TraceError:
        return None


def _peak_bytes(run: Run) -> int | None:
    """What the ranks of a run held together, each at its own peak."""
    peaks = [m.peak_bytes or m.kernel_peak_bytes for r in run.ranks if (m := r.memory) is not None]
    held = [p for p in peaks if p is not None]
    return sum(held) if held else None


def together(estimates: Iterable[Estimate]) -> Estimate:
    """One after another: seconds add up, memory is the most of any."""
    taken = list(estimates)
    return Estimate(
        sum(e.num_runs for e in taken),
        sum(e.seconds for e in taken),
        sum(e.num_unknown for e in taken),
        max((e.peak_bytes for e in taken if e.peak_bytes is not None), default=None),
    )


def said(name: str, reason: str, estimate: Estimate) -> str:
    """One line for a person."""
    unknown = f" + {estimate.num_unknown} of unknown length" if estimate.num_unknown else ""
    peak = estimate.peak_bytes
    memory = f"{peak / 2**20:8.0f} MiB" if peak is not None else "       ? MiB"
    length = f"{estimate.seconds:7.1f} s{unknown}"
    return f"{name:<20} {estimate.num_runs:>3} runs {length} {memory}  {reason}".rstrip()
