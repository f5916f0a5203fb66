"""How quiet the machine is: the load of other processes, and a canary.

In: nothing. Out: `Readings`, of which two give a `Quiet` for the trace. While one is taken, in half
a second, nothing of ours runs, so that all load is of other processes. The canary is a matrix
product on one core, whose best time should not change. Load shows that others compete for the
cores; the canary also shows a processor that became slower or hotter, and a virtual machine that
gets less of its host. On a quiet virtual machine of two cores, the best times of successive
readings differed by at most 0.7 %.
"""

import time
from pathlib import Path

from proofbook.runners.core.trace.records import Canary, Quiet

STAT = Path("/proc/stat")
LOAD_SECONDS = 0.25
CANARY_SECONDS = 0.22
MATRIX_WIDTH = 384
Reading = tuple[float | None, float]  # the load of others, 0 to 1, and seconds of the canary


def reading() -> Reading:
    """The load of other processes and the canary; the load last, when earlier runs have ended."""
    best, share = round(canary(), 9), load()
    return None if share is None else round(share, 4), best


class Readings:
    """A reading between every two experiments: the last of one is the first of the next."""

    def begin(self) -> None:
        """Take the reading before an experiment: the first one, or after something else ran."""
        self._last = reading()

    def end(self) -> Quiet:
        """Take the reading after an experiment; what its trace records."""
        (before, first), self._last = self._last, reading()
        after, last = self._last
        canaries = {"compute": Canary(before_seconds=first, after_seconds=last)}
        return Quiet(load_before_share=before, load_after_share=after, canaries=canaries)


def load(seconds: float = LOAD_SECONDS, stat: Path = STAT) -> float | None:
    """The share of all cores, 0 to 1, that others use while this process sleeps `seconds`; or None.

    Time that the host took from a virtual machine ("steal") was used by others, too. None where the
    platform does not tell.
    """
    try:
        before = _ticks(stat)
        time.sleep(seconds)
        total, idle = (b - a for a, b in zip(before, _ticks(stat), strict=True))
    except OSError:
        return None
    return 1 - idle / total if total else None


def _ticks(stat: Path) -> tuple[int, int]:
    """The kernel's count of time over all cores: the whole, and how long they were idle."""
    ticks = [int(field) for field in stat.read_text().split()[1:9]]
    return sum(ticks), ticks[3] + ticks[4]  # idle, and waiting for a disk


def canary() -> float:
    """The shortest time of a matrix product on one core, over `CANARY_SECONDS`; in seconds."""
    import torch
    from torch.utils.benchmark import Timer

    factor = torch.full((MATRIX_WIDTH, MATRIX_WIDTH), 1 / MATRIX_WIDTH)
    timer = Timer("torch.mm(factor, factor)", globals={"torch": torch, "factor": factor})
    until, taken = time.perf_counter() + CANARY_SECONDS, []
    while time.perf_counter() < until:
        taken.append(timer.timeit(1).mean)
    return min(taken)
