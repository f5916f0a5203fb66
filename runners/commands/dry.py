"""`python -m runners run --dry`: what would run, how long and with how much memory. Nothing runs.

In: what is pending. Out: a line an experiment and one for all. How long a run takes, and how much
memory its ranks take together, is read off its last trace here, however stale; else off the
reference machine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runners.measuring.pending import Pending
from runners.traces.files import TraceError, read
from runners.traces.records import Run


@dataclass(frozen=True)
class Estimate:
    """What some runs would take.

    Attributes:
        num_runs: that would run.
        num_known: of which somebody knows how long they take.
        seconds: of these, one after another.
        peak_bytes: the most that the ranks of one run hold together; 0 where none is known.
    """

    num_runs: int
    num_known: int
    seconds: float
    peak_bytes: int

    def line(self, name: str, reason: str = "") -> str:
        """One line for a person."""
        least = "" if self.num_known == self.num_runs else "at least "
        length = f"{least}{self.seconds:.1f} s"
        peak = f"{self.peak_bytes / 2**20:.0f}" if self.peak_bytes else "?"
        line = f"{name:<20} {self.num_runs:>3} runs {length:>17} {peak:>8} MiB  {reason}"
        return line.rstrip()


def estimated(waiting: Pending, where: Path, traces: Path) -> Estimate:
    """What an experiment would take.

    Args:
        waiting: what of it would run.
        where: this machine's folder.
        traces: the folder of all machines' folders.
    """
    known: dict[str, Run] = {}
    for folder in (where, *sorted(traces.glob("reference-*"))):
        try:
            runs = read(folder / f"{waiting.experiment.name}.json").runs
        except TraceError:
            continue
        known = {**{name: run for name, run in runs.items() if run.status != "skipped"}, **known}
    last = [known[name] for name in waiting.measured if name in known]
    seconds = sum(run.timing.wall_seconds for run in last)
    peak = max(map(_peak_bytes, last), default=0)
    return Estimate(len(waiting.measured), len(last), seconds, peak)


def _peak_bytes(run: Run) -> int:
    """What the ranks of a run held together, each at its own peak; fake tensors take no memory."""
    known = [rank.memory for rank in run.ranks if rank.memory and run.nature != "simulated"]
    return sum(memory.peak_bytes or memory.kernel_peak_bytes or 0 for memory in known)


def together(found: Sequence[Estimate]) -> Estimate:
    """One after another: seconds add up, memory is the most of any."""
    return Estimate(
        sum(one.num_runs for one in found),
        sum(one.num_known for one in found),
        sum(one.seconds for one in found),
        max(one.peak_bytes for one in found),
    )
