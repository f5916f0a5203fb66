"""What collectives cost: time by size and by ranks, and the bytes that each really sends.

`ranks_2`, `ranks_3` and `ranks_4` time each operation over payloads that grow by large steps, and
fit t = α + β·bytes to the raw samples of every turn; residuals are what the fit to the medians
leaves at each size. `wire_2` to `wire_4` run the same operations with each rank in a network of its
own, and read the kernel's counters of its link: headers are taken off by the frame
(`runners/meters/link.py`), so what is left is what the backend itself put on the wire.

The size of an operation is that of the whole: what `all_gather` ends with on each rank, what
`reduce_scatter` starts from, what the root of a `broadcast` has.

    python -m runners run communication
"""

from __future__ import annotations

from functools import cached_property

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, RunSettings

QUESTION = "How long does each collective take, and how many bytes does it really send?"
VALUE_BYTES = 4
WORLD_SIZES = (2, 3, 4)
# Divisible by two, three and four ranks' shares of four-byte values.
SIZES = (3 << 10, 48 << 10, 768 << 10, 3 << 20)
WIRE_SIZES = (768 << 10, 3 << 20)
OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all")


class Settings(RunSettings):
    """The payloads of each operation."""

    sizes_bytes: tuple[Count, ...]

    @cached_property
    def largest_bytes(self) -> int:
        """The largest payload."""
        return max(self.sizes_bytes)

    def check(self) -> None:
        """Refuse a single size, or one that the ranks cannot share equally."""
        if len(set(self.sizes_bytes)) < 2:
            raise ValueError(
                "sizes_bytes must list two or more sizes in bytes, such as 3072,3145728"
            )
        for size in self.sizes_bytes:
            if size % (self.world_size * VALUE_BYTES):
                raise ValueError(
                    f"a size of {size} bytes cannot be dealt out to {self.world_size} ranks"
                )


class Timed(Settings):
    """How often each operation is timed."""

    sizes_bytes: tuple[Count, ...] = SIZES
    num_turns: Count = 8
    num_steps: Count = 12


RUNS: dict[str, RunPlan[Settings]] = {
    f"ranks_{n}": RunPlan("timed", n, Timed(), passes=("timed",), can_share_device=False)
    for n in WORLD_SIZES
} | {
    f"wire_{n}": RunPlan(
        "counted",
        n,
        Settings(sizes_bytes=WIRE_SIZES),
        passes=("timed",),
        only_on_cpu=True,
        own_network=True,
    )
    for n in WORLD_SIZES
}
