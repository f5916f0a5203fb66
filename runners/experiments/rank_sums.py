"""Sums of bf16 gradients over ranks: around a ring, in pairs, or exchanged; in bf16 or fp32.

Every way is a reduce-scatter: a rank ends with the sum of its part. Gloo ranks send each message,
and one process replays the same order, also for more ranks than run here. Errors are relative to
the sum of the same gradients in float64, in the Euclidean norm.

    python -m runners run rank_sums
"""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

from proofbook.runners.api import Count, Declaration, FactorOrZero, RunSettings, Setting
from proofbook.runners.training.rank import Rank


def gradients(settings: Settings, num_ranks: int) -> Tensor:
    """(ranks, parts, numbers of a part): what all ranks have `alike`, and noise of their own."""
    source = torch.Generator().manual_seed(0)
    common = torch.randn(settings.num_numbers, generator=source)
    noise = torch.randn(num_ranks, settings.num_numbers, generator=source)
    return (settings.alike * common + noise).bfloat16().unflatten(1, (num_ranks, -1))


class Sums:
    """One rank's messages, counted."""

    def __init__(self, rank: Rank[Settings]) -> None:
        self.own, self.size = rank.rank, rank.world_size
        self.num_sent = self.num_messages = 0

    def swapped(self, tensor: Tensor, to: int, source: int) -> Tensor:
        """Send a tensor to one rank, and receive as much from another."""
        received = torch.empty_like(tensor)
        sending = dist.isend(tensor.contiguous(), to)
        dist.recv(received, source)
        assert sending is not None
        sending.wait()
        self.num_sent, self.num_messages = self.num_sent + tensor.nbytes, self.num_messages + 1
        return received

    def ring(self, parts: Tensor) -> Tensor:
        """A part's sum begins at the rank behind its owner; each rank adds its own, and rounds."""
        total = parts[self.own - 1]
        for turn in range(2, self.size + 1):
            total = self.swapped(total, (self.own + 1) % self.size, (self.own - 1) % self.size)
            total = total + parts[(self.own - turn) % self.size]
        return total

    def pairs(self, parts: Tensor) -> Tensor:
        """Two ranks exchange halves, add, and go on with half of what is left; and so on."""
        first = 0
        while (half := len(parts) // 2) > 0:
            is_upper = self.own >= first + half
            kept, given = (parts[half:], parts[:half]) if is_upper else (parts[:half], parts[half:])
            other = self.own - half if is_upper else self.own + half
            parts, first = kept + self.swapped(given, other, other), first + half * is_upper
        return parts[0]

    def exchange(self, parts: Tensor) -> Tensor:
        """All send each owner its part as it is, and the owner adds in fp32."""
        received = torch.empty_like(parts)
        dist.all_to_all_single(received, parts.contiguous())
        self.num_sent += parts.nbytes - parts[0].nbytes
        self.num_messages += self.size - 1
        return in_fp32(received)


def in_fp32(terms: Tensor) -> Tensor:
    """One term after the other, without rounding to bf16 between them."""
    total = terms[0].float()
    for term in terms[1:]:
        total += term
    return total


def replayed_ring(of_ranks: Tensor) -> Tensor:
    """(ranks, parts, …) → (parts, …), added in the order in which each part travels."""
    own = torch.arange(len(of_ranks))
    total = of_ranks[(own + 1) % len(own), own]
    for turn in range(2, len(own) + 1):
        total = total + of_ranks[(own + turn) % len(own), own]
    return total


def replayed_pairs(of_ranks: Tensor) -> Tensor:
    """Upper ranks added to lower ones, until one is left."""
    while len(of_ranks) > 1:
        lower, upper = of_ranks.chunk(2)
        of_ranks = lower + upper
    return of_ranks[0]


REPLAYS = {"ring": replayed_ring, "pairs": replayed_pairs, "exchange": in_fp32}


def error(total: Tensor, true: Tensor) -> float:
    """The relative error of a sum."""
    return ((total - true).norm() / true.norm()).item()


def summed(rank: Rank[Settings]) -> None:
    """A reduce-scatter over ranks, and the same sum replayed in this process."""
    settings, size = rank.settings, rank.world_size
    of_ranks = gradients(settings, size).to(getattr(torch, settings.dtype))
    ways = Sums(rank)
    for _ in rank.steps(1):
        own = getattr(ways, settings.strategy)(of_ranks[rank.rank])
    replayed = REPLAYS[settings.strategy](of_ranks)
    rank.measure("sent_bytes", ways.num_sent, unit="bytes")
    rank.measure("num_messages", ways.num_messages, unit="messages")
    rank.measure("num_differ", int((own != replayed[rank.rank]).sum()), unit="numbers")
    rank.measure("error", error(replayed, of_ranks.double().sum(0)), unit="error")


def replayed(rank: Rank[Replayed]) -> None:
    """The errors of each way by the number of ranks, and how long the sum of a ring is."""
    errors: dict[str, list[float]] = {}
    for num in rank.settings.num_ranks:
        own = gradients(rank.settings, num)
        true = own.double().sum(0)
        sums = {"ring_bf16": replayed_ring(own), "pairs_bf16": replayed_pairs(own)}
        sums["ring_fp32"] = replayed_ring(own.float())
        sums["exchange"] = in_fp32(own)
        sums["exchange_bf16"] = sums["exchange"].bfloat16()  # rounded once, at the end
        for name, total in sums.items():
            errors.setdefault(name, []).append(error(total, true))
        longer = (sums["ring_bf16"].double().norm() / true.norm()).item()
        errors.setdefault("ring_length", []).append(longer)
    for _ in rank.steps(1):
        pass
    for name, of_counts in errors.items():
        rank.measure(name, of_counts, unit="share" if name == "ring_length" else "error")


QUESTION = "How does the error of a sum over ranks grow, and what does a smaller one cost?"


class Settings(RunSettings):
    """Gradients of bf16, and the dtype in which they are sent and added."""

    num_numbers: Count = 4096
    alike: FactorOrZero = 0.0  # of what all ranks have in common, beside noise of size 1
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    equal_parts = (("num_numbers", "world_size"),)

    def closed_forms(self) -> dict[str, Setting]:
        """What a rank sends: all parts but its own."""
        itemsize = 2 if self.dtype == "bfloat16" else 4
        num_parts = self.world_size - 1
        return {"predicted_bytes": itemsize * self.num_numbers * num_parts // self.world_size}


class Replayed(Settings):
    """As many ranks as no machine here has."""

    num_ranks: tuple[Count, ...] = (2, 4, 8, 16, 32, 64, 128, 256, 512)

    def closed_forms(self) -> dict[str, Setting]:
        """The errors of sums of independent terms over most ranks, in errors of a sum of two.

        Each addition adds an error in proportion to its sum, whose square grows with its terms.
        """
        most = max(self.num_ranks)
        ring = math.sqrt((most + 1) / 2 - 1 / most)
        return {"ring_growth": ring, "pairs_growth": math.sqrt(math.log2(most))}


STRATEGIES = {**dict.fromkeys(("ring", "pairs", "exchange"), summed), "replayed": replayed}
SHORT = {"bfloat16": "bf16", "float32": "fp32"}
WAYS = ("ring", "bfloat16"), ("ring", "float32"), ("pairs", "bfloat16"), ("exchange", "bfloat16")
run = partial(Declaration, only_on_cpu=True, passes=("timed",))
RUNS = {
    **{
        f"{way}_{SHORT[dtype]}_{size}": run(way, size, Settings(dtype=dtype))
        for size in (2, 4)
        for way, dtype in WAYS
    },
    "noise": run("replayed", 1, Replayed()),
    "alike": run("replayed", 1, Replayed(alike=2.0)),
}
TRIED_WITH = {"noise": {"num_ranks": (2, 4)}, "alike": {"num_ranks": (2, 4)}}
