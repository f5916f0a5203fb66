"""`python -m runners run --dry`: what would run, how long and with how much memory. Nothing runs.

In: what is pending. Out: a line an experiment and one for all. How long a run takes, and how much
memory its ranks take together, is read off its last trace here, however stale; else off the
reference machine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runners.measuring.pending import Pending
from runners.traces import machine
from runners.traces.files import TraceError, read
from runners.traces.records import Run


def estimates(waiting: Sequence[Pending], where: Path) -> list[str]:
    """A line for each experiment that would run, and one for all.

    Args:
        waiting: what would run.
        where: this machine's folder.
    """
    said, everything = [], list[Run]()
    for one in waiting:
        known = _last(one.experiment.name, [where, *machine.references()])
        runs = [known[name] for name in one.measured if name in known]
        said.append(_line(one.experiment.name, len(one.measured), runs, one.reason))
        everything += runs
    return [*said, _line("in all", sum(len(one.measured) for one in waiting), everything)]


def _last(experiment: str, folders: Sequence[Path]) -> dict[str, Run]:
    """What was measured of an experiment; of each run, what the first folder has that has it."""
    known: dict[str, Run] = {}
    for folder in reversed(folders):
        try:
            runs = read(folder / f"{experiment}.json").runs
        except TraceError:
            continue
        known |= {name: run for name, run in runs.items() if run.status != "skipped"}
    return known


def _line(name: str, num_runs: int, known: Sequence[Run], reason: str = "") -> str:
    """So many runs one after another, of which some are known: seconds, and the largest peak."""
    least = "" if len(known) == num_runs else "at least "
    length = f"{least}{sum(run.timing.wall_seconds for run in known):.1f} s"
    peak = f"{max(map(_peak_bytes, known)) / 2**20:.0f}" if known else "?"
    return f"{name:<20} {num_runs:>3} runs {length:>17} {peak:>8} MiB  {reason}".rstrip()


def _peak_bytes(run: Run) -> int:
    """What the ranks of a run held together, each at its own peak; fake tensors take no memory."""
    known = [rank.memory for rank in run.ranks if rank.memory and run.nature != "simulated"]
    return sum(memory.peak_bytes or memory.kernel_peak_bytes or 0 for memory in known)
