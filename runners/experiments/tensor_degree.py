"""How far tensor parallelism goes: layers of a set duration, over links of a set rate.

A column-row pair computes for as long as it is told to, and each rank for its part of that. More
ranks divide the computation, but hardly the bytes that each of them sends. Two more strategies
multiply what a rank gathers, all at once or part by part as it arrives.

    python -m runners run tensor_degree
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from proofbook.runners.api import Count, Declaration, RunSettings, Setting, Settled, closed_form
from proofbook.runners.closed_forms.shape import FLOAT_BYTES
from proofbook.runners.closed_forms.steps import ring_bytes
from proofbook.runners.training.rank import Rank


def pairs(rank: Rank[Settings]) -> None:
    """In forward and in backward, compute a rank's part of each pair and sum the activations."""
    activations = _activations(rank)
    for _ in _steps(rank):
        for share in (1 / 3, 2 / 3):  # backward computes twice as long as forward
            for _ in range(rank.settings.num_pairs):
                time.sleep(share * rank.settings.pair_seconds / rank.world_size)
                if rank.world_size > 1:
                    dist.all_reduce(activations)
                    activations /= rank.world_size  # the numbers stay as they are


def gather_first(rank: Rank[Settings]) -> None:
    """Gather all tokens, then multiply them by the rank's columns."""
    activations, columns = _activations(rank), _columns(rank)
    own = activations.chunk(rank.world_size)[rank.rank]
    for _ in _steps(rank):
        for _ in range(rank.settings.num_pairs):
            whole = torch.empty_like(activations)
            dist.all_gather_into_tensor(whole, own)
            product = whole @ columns
            time.sleep(rank.settings.pair_seconds / rank.world_size)
    rank.measure("product_sum", float(product.double().sum()))


def multiply_as_it_arrives(rank: Rank[Settings]) -> None:
    """Pass the ranks' tokens around a ring; multiply one part while the next is on its way."""
    activations, columns = _activations(rank), _columns(rank)
    size, here = rank.world_size, rank.rank
    own = activations.chunk(size)[here]
    for _ in _steps(rank):
        for _ in range(rank.settings.num_pairs):
            part, products = own, [torch.empty(0)] * size
            for turn in range(size):
                arriving, calls = torch.empty_like(own), []
                if turn < size - 1:
                    send = dist.P2POp(dist.isend, part, (here + 1) % size)
                    receive = dist.P2POp(dist.irecv, arriving, (here - 1) % size)
                    calls = dist.batch_isend_irecv([send, receive])
                products[(here - turn) % size] = part @ columns
                time.sleep(rank.settings.pair_seconds / size**2)
                for call in calls:
                    call.wait()
                part = arriving
            product = torch.cat(products)
    rank.measure("product_sum", float(product.double().sum()))


def _activations(rank: Rank[Settings]) -> Tensor:
    """The same on every rank: `[tokens, width]`."""
    source = torch.Generator().manual_seed(rank.seed)
    return torch.randn(rank.settings.num_tokens, rank.settings.width, generator=source)


def _columns(rank: Rank[Settings]) -> Tensor:
    """Some columns of a weight, the rank's own."""
    source = torch.Generator().manual_seed(rank.seed + 1 + rank.rank)
    return torch.randn(rank.settings.width, 8, generator=source)


def _steps(rank: Rank[Settings]) -> Iterator[int]:
    rank.count_samples(rank.settings.num_steps)
    yield from rank.steps(rank.settings.num_steps)


QUESTION = "Over how many ranks is it worth dividing a layer, and what does overlap change?"


class Settings(RunSettings):
    """Column-row pairs of a set duration on one device, their activations, and a link."""

    num_tokens: Count = 512
    width: Count = 512
    num_pairs: Count = 2
    num_steps: Settled = 8
    pair_milliseconds: int = 0  # forward and backward, or a product, on one device
    link_bits_per_second: Count = 400_000_000

    @property
    def pair_seconds(self) -> float:
        """How long one device computes for a pair."""
        return self.pair_milliseconds / 1000

    @closed_form
    def hidden_state_bytes(self) -> int:
        """Bytes of all tokens' activations at a border of a pair."""
        return FLOAT_BYTES * self.num_tokens * self.width

    @closed_form
    def computing_seconds(self) -> float:
        """How long a rank computes in a step."""
        return self.num_pairs * self.pair_seconds / self.world_size

    def closed_forms(self) -> dict[str, Setting]:
        """By name: those of the base class, and seconds of a step's sums or gathers on the link."""
        reduced = ring_bytes(self.hidden_state_bytes, self.world_size)
        sends = 2 * reduced if self.strategy == "pairs" else reduced / 2
        seconds = float(self.num_pairs * sends / (self.link_bits_per_second / 8))
        return {**super().closed_forms(), "sending_seconds": seconds}


linked = partial(Declaration, passes=("timed",), nature="paced", only_on_cpu=True, own_network=True)
WIDE, NARROW = Settings(pair_milliseconds=120), Settings(pair_milliseconds=40)
LONG, SHORT = Settings(pair_milliseconds=160), Settings(pair_milliseconds=40)
RUNS = {
    **{f"wide_{n}": linked("pairs", n, WIDE, full=n == 8) for n in (1, 2, 4, 8)},
    **{f"narrow_{n}": linked("pairs", n, NARROW, full=n == 4) for n in (1, 2, 4)},
    "gather_first": linked("gather_first", 4, LONG),
    "ring": linked("multiply_as_it_arrives", 4, LONG),
    "ring_short": linked("multiply_as_it_arrives", 4, SHORT, full=True),
}
TRIED_WITH = {"*": {"num_steps": 4, "num_tokens": 128}}
