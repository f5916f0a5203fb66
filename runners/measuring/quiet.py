"""How quiet the machine is: the load of other processes, and a canary.

In: nothing. Out: a `Reading`, which takes half a second; of two readings, a `Quiet` for the trace.
While a reading is taken nothing of ours runs, so that all load is of other processes. The canary is
a matrix product on one core, whose best time should not change. Load shows that others compete for
the cores; the canary also shows a processor that became slower or hotter, and a virtual machine
that gets less of its host. On a quiet virtual machine of two cores, the best times of successive
readings differed by at most 0.7 %.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from runners.traces.quiet_record import Canary, Quiet

STAT = Path("/proc/stat")
LOAD_SECONDS = 0.25
CANARY_SECONDS = 0.22
MATRIX_WIDTH = 384


class NotQuietError(RuntimeError):
    """An experiment was disturbed while it was measured for the reference set."""


class Reading(NamedTuple):
    """The machine at one moment: the load of others, and the best time of the canary."""

    load_share: float | None
    compute_seconds: float

    def until(self, after: Reading) -> Quiet:
        """What a trace records of this reading and a later one."""
        times = Canary(before_seconds=self.compute_seconds, after_seconds=after.compute_seconds)
        return Quiet(
            load_before_share=self.load_share,
            load_after_share=after.load_share,
            canaries={"compute": times},
        )


def reading() -> Reading:
    """Read the machine. The load comes last, when what ran before has really ended."""
    best, share = round(compute(), 9), load()
    return Reading(None if share is None else round(share, 4), best)


class Readings:
    """A reading before and after each experiment; one's last is the next one's first."""

    def __init__(self, take: Callable[[], Reading] = reading) -> None:
        """Read this machine, or what `take` gives."""
        self._take = take

    def begin(self) -> None:
        """Take the reading before an experiment: the first one, or after something else ran."""
        self._last = self._take()

    def end(self) -> Quiet:
        """Take the reading after an experiment; what its trace records."""
        before, self._last = self._last, self._take()
        return before.until(self._last)


def load(seconds: float = LOAD_SECONDS, stat: Path = STAT) -> float | None:
    """The share of all cores that others use while this process sleeps, 0 to 1.

    Time that the host took from a virtual machine ("steal") was used by others, too. None where the
    platform does not tell.
    """
    try:
        before = _ticks(stat)
        time.sleep(seconds)
        total, idle = (b - a for a, b in zip(before, _ticks(stat), strict=True))
    except (OSError, ValueError):
        return None
    return 1 - idle / total if total else None


def _ticks(stat: Path) -> tuple[int, int]:
    """The kernel's count of time over all cores: the whole, and how long they were idle."""
    ticks = [int(one) for one in stat.read_text().split()[1:9]]
    return sum(ticks), ticks[3] + ticks[4]  # idle, and waiting for a disk


def compute() -> float:
    """The best time of a matrix product, in seconds; on one core, as ranks compute."""
    import torch
    from torch.utils.benchmark import Timer

    factor = torch.full((MATRIX_WIDTH, MATRIX_WIDTH), 1 / MATRIX_WIDTH)
    timer = Timer("torch.mm(factor, factor)", globals={"torch": torch, "factor": factor})
    until, best = time.perf_counter() + CANARY_SECONDS, float("inf")
    while time.perf_counter() < until:
        best = min(best, timer.timeit(1).mean)
    return best
