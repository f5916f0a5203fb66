"""What collectives cost: time by size and by ranks, and the bytes that each really sends.

The `ranks_` runs time each operation over payloads that grow by large steps. The `wire_` runs give
each rank a network of its own and read the kernel's counters of its link: headers are taken off by
the frame (`runners/core/meters/link.py`), so the rest is what the backend put on the wire.

The size of an operation is that of the whole: what `all_gather` ends with on each rank, what
`reduce_scatter` starts from, what the root of a `broadcast` has.

    python -m runners run communication
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist

from proofbook.runners.api import Count, Declaration, RunSettings, Setting
from proofbook.runners.closed_forms.shape import FLOAT_BYTES
from proofbook.runners.training.rank import Rank
from proofbook.runners.training.transfers import fit, in_turns, sent


def timed(rank: Rank[Timed]) -> None:
    """Take steps of the largest all_reduce; record all operations' seconds, α and β."""
    sizes = rank.settings.sizes_bytes
    calls = {size: _operations(rank, size) for size in sizes}
    for _ in rank.steps(rank.settings.num_steps):
        with rank.phase("all_reduce", computes=False):
            calls[max(sizes)]["all_reduce"]()
    for operation in calls[sizes[0]]:
        with rank.phase(operation, computes=False):
            of_sizes = [calls[size][operation] for size in sizes]
            turns = in_turns(rank, of_sizes, rank.settings.num_turns)
        for size, *seconds in zip(sizes, *turns, strict=True):
            rank.measure_seconds(f"{operation}_{size}", seconds)
        fits = [fit(sizes, turn) for turn in turns]
        rank.measure_seconds(f"{operation}_alpha", [alpha for alpha, _ in fits])
        rank.measure_seconds(f"{operation}_beta_a_mebibyte", [beta * (1 << 20) for _, beta in fits])


def counted(rank: Rank[Settings]) -> None:
    """Every operation at every size, once, between two readings of this rank's link."""
    for size in rank.settings.sizes_bytes:
        for operation, call in _operations(rank, size).items():
            with rank.phase(operation), sent(rank, **{f"{operation}_{size}_sent_bytes": 1}):
                call()


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


QUESTION = "How long does each collective take, and how many bytes does it really send?"
# Divisible by two, three and four ranks' shares of four-byte values.
SIZES = (3 << 10, 48 << 10, 768 << 10, 3 << 20)


class Settings(RunSettings):
    """The payloads of each operation."""

    sizes_bytes: tuple[Count, ...] = SIZES[-2:]

    def closed_forms(self) -> dict[str, Setting]:
        """Bytes of the largest payload."""
        return {"largest_bytes": max(self.sizes_bytes)}

    def check(self) -> None:
        """Refuse a single size, or one that the ranks cannot share equally."""
        share = self.world_size * FLOAT_BYTES
        if len(set(self.sizes_bytes)) < 2 or any(size % share for size in self.sizes_bytes):
            raise ValueError(
                f"sizes_bytes must list two or more multiples of {share}, such as 3072,3145728"
            )


class Timed(Settings):
    """How often each operation is timed."""

    sizes_bytes: tuple[Count, ...] = SIZES
    num_turns: Count = 8
    num_steps: Count = 12


declaration = partial(Declaration, passes=("timed",))
linked = partial(declaration, only_on_cpu=True, own_network=True)
RUNS = {
    **{f"ranks_{n}": declaration("timed", n, Timed(), can_share_device=False) for n in (2, 3, 4)},
    **{f"wire_{n}": linked("counted", n, Settings()) for n in (2, 3, 4)},
}
