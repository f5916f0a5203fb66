"""A measured ratio and how it is printed: two medians, taken in turn so that drift hits both."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """How many times `of` takes as long as `against`, from raw seconds of both."""

    of: str
    against: str
    of_seconds: Sequence[float]
    against_seconds: Sequence[float]

    def __str__(self) -> str:
        above, below = map(statistics.median, (self.of_seconds, self.against_seconds))
        num, num_against = len(self.of_seconds), len(self.against_seconds)
        samples = f"samples: {num}" if num == num_against else f"samples: {num} and {num_against}"
        detail = f"{self.of} {_readable(above)}, {self.against} {_readable(below)}, {samples}"
        return f"{above / below:6.2f} times  {detail}"


def _readable(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def seconds_of(work: Callable[[], object]) -> float:
    """The wall time of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_turn(works: dict[str, Callable[[], object]], times: int) -> dict[str, list[float]]:
    """Seconds of each of several works, called one after the other, `times` rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(times):
        for name, work in works.items():
            seconds[name].append(seconds_of(work))
    return seconds
