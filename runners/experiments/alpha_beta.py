"""Whether α–β tells the time of a collective: links of a set rate and latency, nothing fitted.

Each rank lives behind a link that lets through so many bits a second; some links also keep each
packet for a while. A collective takes the time of the bytes that a rank sends, and some latencies
for each of its turns. `two_nodes` sums over four ranks on two nodes, with links that are faster
within a node than between nodes.

    python -m runners run alpha_beta
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from proofbook.runners.api import Count, CountOrZero, Declaration, RunSettings, Setting
from proofbook.runners.closed_forms.shape import FLOAT_BYTES
from proofbook.runners.training import delay
from proofbook.runners.training.rank import Rank, links
from proofbook.runners.training.transfers import in_turns, join_group


def collectives(rank: Rank[Settings]) -> None:
    """Every operation at every size, in turns."""
    _join(rank)
    for size in rank.settings.sizes_bytes:
        for operation, call in _operations(rank, size).items():
            _measure(rank, f"{operation}_{size}", call)


def _measure(rank: Rank[Settings], name: str, call: Callable[[], object]) -> None:
    """Times of one operation, each that of the rank that took longest."""
    with rank.phase(name, computes=False):
        longest = torch.tensor(in_turns(rank, [call], rank.settings.num_times))
        dist.all_reduce(longest, dist.ReduceOp.MAX)
    rank.measure_seconds(name, longest.flatten().tolist())


def _join(rank: Rank[Settings]) -> None:
    """Make the group, over links with a latency where they have one."""
    if rank.settings.latency_microseconds:
        delay.start(rank.rank, rank.settings.latency_microseconds / 1e6)
        os.environ["GLOO_SOCKET_IFNAME"] = delay.INTERFACE
    join_group(rank.scratch / "store", rank.rank, rank.world_size)


def _operations(rank: Rank[Any], num_bytes: int) -> dict[str, Callable[[], object]]:
    """Each operation over a payload, which is the whole on every rank."""
    whole = torch.zeros(num_bytes // FLOAT_BYTES)
    share = torch.zeros(whole.numel() // rank.world_size)
    return {
        "send": partial(_send, rank, whole),
        "all_reduce": partial(dist.all_reduce, whole),
        "all_gather": partial(dist.all_gather_into_tensor, torch.empty_like(whole), share),
        "exchange_one_ready": partial(_exchange, rank, share, is_ready=rank.rank % 2 == 1),
        "exchange_all_ready": partial(_exchange, rank, share, is_ready=True),
    }


def _exchange(rank: Rank[Any], share: Tensor, *, is_ready: bool) -> None:
    """Each rank sends its share to the next one; one that is ready has called its receive before.

    gloo sends a payload only after the receiver's notice that it is ready. A rank that sends first
    puts its own notice behind its payload, if both go to the same rank.
    """
    received = torch.empty_like(share)
    sender, receiver = ((rank.rank + step) % rank.world_size for step in (-1, 1))
    works = [dist.irecv(received, sender)] if is_ready else []
    dist.barrier()
    works.append(dist.isend(share, receiver))
    if not is_ready:
        works.append(dist.irecv(received, sender))
    for work in filter(None, works):
        work.wait()


def _send(rank: Rank[Any], whole: Tensor) -> None:
    """From rank 0 to rank 1, which answers with one number: a sender returns before its bytes."""
    if rank.rank == 0:
        dist.send(whole, 1)
        dist.recv(torch.empty(1), 1)
    elif rank.rank == 1:
        dist.recv(whole, 0)
        dist.send(torch.zeros(1), 0)


def nodes(rank: Rank[Nodes]) -> None:
    """Shape links of two nodes; record seconds of an all_reduce over all ranks, and by node."""
    settings = rank.settings
    per_node = rank.world_size // 2
    node = rank.rank // per_node
    mates = [links.address(node * per_node + i) for i in range(per_node)]
    links.shape(settings.node_bits_per_second, settings.within_bits_per_second, mates)
    _join(rank)
    within = [dist.new_group([0, 1]), dist.new_group([2, 3])][node]
    across = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank.rank % per_node]
    whole = torch.zeros(settings.sizes_bytes[0] // FLOAT_BYTES)
    share = torch.zeros(whole.numel() // per_node)

    def by_node() -> None:
        dist.reduce_scatter_tensor(share, whole, group=within)
        dist.all_reduce(share, group=across)
        dist.all_gather_into_tensor(whole, share, group=within)

    _measure(rank, "flat", partial(dist.all_reduce, whole))
    _measure(rank, "by_node", by_node)


QUESTION = "Do a latency and a rate tell how long a collective takes?"
# The whole: divisible into four ranks' shares of four-byte values.
SMALL, MIDDLING, LARGE = 1 << 10, 1 << 18, 1 << 21
MEGABIT = 1_000_000


class Settings(RunSettings):
    """Payloads, and the links that they pass."""

    sizes_bytes: tuple[Count, ...] = (SMALL, MIDDLING, LARGE)
    num_times: Count = 5
    link_bits_per_second: Count | None = 400 * MEGABIT
    latency_microseconds: CountOrZero = 0

    def closed_forms(self) -> dict[str, Setting]:
        """The latency, and the seconds of a byte."""
        rate, latency_seconds = self.link_bits_per_second, self.latency_microseconds / 1e6
        return {"latency_seconds": latency_seconds, "byte_seconds": 8 / rate if rate else 0.0}


class Nodes(Settings):
    """Two nodes: ranks reach those of their own node faster than the others."""

    sizes_bytes: tuple[Count, ...] = (LARGE,)
    link_bits_per_second: Count | None = None  # the ranks shape their links themselves
    within_bits_per_second: Count = 800 * MEGABIT
    node_bits_per_second: Count = 100 * MEGABIT  # of each rank, to the other node

    def closed_forms(self) -> dict[str, Setting]:
        """Figures by name: the base class's, and the seconds of a byte within and between nodes."""
        return {
            **super().closed_forms(),
            "within_byte_seconds": 8 / self.within_bits_per_second,
            "node_byte_seconds": 8 / self.node_bits_per_second,
        }


# A link gets its latency before the first connection: ranks form the group themselves.
linked = partial(
    Declaration, passes=("timed",), needs_group=False, only_on_cpu=True, own_network=True
)
SLOW = {f"mbit_{rate}": Settings(link_bits_per_second=rate * MEGABIT) for rate in (100, 200, 400)}
LATE = {
    f"ms_{ms}": Settings(sizes_bytes=(SMALL, MIDDLING), latency_microseconds=1000 * ms)
    for ms in (10, 20)
}
RUNS = {
    **{
        f"{name}_ranks_{n}": linked("collectives", n, settings)
        for name, settings in {**SLOW, **LATE}.items()
        for n in (2, 4)
    },
    "two_nodes": linked("nodes", 4, Nodes()),
}
TRIED_WITH = {
    "*": {"num_times": 1},
    **{run: {"sizes_bytes": [SMALL]} for run in RUNS if "ms_" in run},
}
