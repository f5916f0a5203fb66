"""What collectives cost: time by size and by ranks, and the bytes that each really sends.

`ranks_2`, `ranks_3` and `ranks_4` time each operation over payloads that grow by large steps, and
fit t = α + β·bytes to the raw samples of every turn. `wire_2` to `wire_4` run the same operations
with each rank in a network of its own, and read the kernel's counters of its link: headers are
taken off by the frame (`runners/meters/link.py`), so what is left is what the backend itself put on
the wire.

The size of an operation is that of the whole: what `all_gather` ends with on each rank, what
`reduce_scatter` starts from, what the root of a `broadcast` has.

    python -m runners run communication
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, RunSettings
from runners.plans.work import FLOAT_BYTES
from runners.ranks.rank import Rank
from runners.traces.schema import Setting
from runners.training.transfers import fit, seconds_alone


def timed(rank: Rank[Timed]) -> None:
    """Steps of one all_reduce; then every operation at every size, in turns; then the fits."""
    settings = rank.settings
    largest = torch.zeros(max(settings.sizes_bytes) // FLOAT_BYTES, device=rank.device)
    for _ in rank.steps(settings.num_steps):
        with rank.phase("all_reduce", computes=False):
            dist.all_reduce(largest)
    calls = {size: _operations(rank, size) for size in settings.sizes_bytes}
    for operation in calls[settings.sizes_bytes[0]]:
        with rank.phase(operation, computes=False):
            _time(rank, operation, {size: calls[size][operation] for size in calls})


def counted(rank: Rank[Settings]) -> None:
    """Every operation at every size, once, between two readings of this rank's link."""
    for size in rank.settings.sizes_bytes:
        for operation, call in _operations(rank, size).items():
            with rank.phase(operation, computes=False):
                before = rank.link_count()
                call()
                after = rank.link_count()
            assert before is not None
            assert after is not None
            rank.measure(f"{operation}_{size}_sent_bytes", (after - before).sent_payload_bytes)


def _operations(rank: Rank[Settings], num_bytes: int) -> dict[str, Callable[[], object]]:
    """Each operation over a payload, ready to be called; the payload is the whole on every rank."""
    # Zeros, so that sums stay finite however often they are taken.
    whole = torch.zeros(num_bytes // FLOAT_BYTES, device=rank.device)
    share = torch.empty_like(whole[: whole.numel() // rank.world_size])
    other = torch.empty_like(whole)
    return {
        "all_reduce": lambda: dist.all_reduce(whole),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(share, whole),
        "all_gather": lambda: dist.all_gather_into_tensor(other, share),
        "broadcast": lambda: dist.broadcast(whole, 0),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
    }


def _time(rank: Rank[Timed], operation: str, calls: dict[int, Callable[[], object]]) -> None:
    """Raw samples of one operation at each size, and what fits them: one fit a turn."""
    taken: dict[int, list[float]] = {size: [] for size in calls}
    for turn in range(rank.settings.num_turns + 1):
        for size, call in calls.items():
            seconds = seconds_alone(rank, call)
            if turn:  # the first finds cold caches and connections that have not grown yet
                taken[size].append(seconds)
    for size, samples in taken.items():
        rank.measure_seconds(f"{operation}_{size}", samples)
    fits = [fit(list(calls), turn) for turn in zip(*taken.values(), strict=True)]
    rank.measure_seconds(f"{operation}_alpha", [f.alpha for f in fits])
    rank.measure_seconds(f"{operation}_beta_a_mebibyte", [f.beta * (1 << 20) for f in fits])


QUESTION = "How long does each collective take, and how many bytes does it really send?"
# Divisible by two, three and four ranks' shares of four-byte values.
SIZES = (3 << 10, 48 << 10, 768 << 10, 3 << 20)


class Settings(RunSettings):
    """The payloads of each operation."""

    sizes_bytes: tuple[Count, ...] = SIZES[-2:]

    def closed_forms(self) -> dict[str, Setting]:
        """The largest payload."""
        return {"largest_bytes": max(self.sizes_bytes)}

    def check(self) -> None:
        """Refuse a single size, or one that the ranks cannot share equally."""
        if len(set(self.sizes_bytes)) < 2:
            raise ValueError(
                "sizes_bytes must list two or more sizes in bytes, such as 3072,3145728"
            )
        for size in self.sizes_bytes:
            if size % (self.world_size * FLOAT_BYTES):
                raise ValueError(
                    f"a size of {size} bytes cannot be dealt out to {self.world_size} ranks"
                )


class Timed(Settings):
    """How often each operation is timed."""

    sizes_bytes: tuple[Count, ...] = SIZES
    num_turns: Count = 8
    num_steps: Count = 12


RUNS: dict[str, RunPlan[Settings]] = {
    **{
        f"ranks_{n}": RunPlan("timed", n, Timed(), passes=("timed",), can_share_device=False)
        for n in (2, 3, 4)
    },
    **{
        f"wire_{n}": RunPlan(
            "counted", n, Settings(), passes=("timed",), only_on_cpu=True, own_network=True
        )
        for n in (2, 3, 4)
    },
}
