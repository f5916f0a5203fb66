"""Replicas that round their parameters to bf16, and sums of parts that were rounded.

In `train`, all replicas take the same gradients, and one may differ in something: its seed, or what
it had after half of the steps. In `add`, parts of a gradient are rounded, then added in fp32.

    python -m runners run agreement
"""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from proofbook.runners.api import Count, Declaration, Factor, RunSettings, closed_form
from proofbook.runners.training.rank import Rank


def train(rank: Rank[Settings]) -> None:
    """Train a replica under Adam; measure how far it moved, and how far it is from rank 0."""
    settings, source = rank.settings, torch.Generator().manual_seed(rank.seed)
    shape = (settings.width, settings.width)
    signs = torch.randint(2, shape, generator=source) * 2 - 1
    first = (signs * (1 + torch.rand(shape, generator=source)) / 2).bfloat16()
    goal = first.float() + 0.2 * torch.randn(shape, generator=source)
    inputs = torch.randn(rank.world_size, settings.batch_size, settings.width, generator=source)
    differs = settings.differs if rank.rank == 1 else "nothing"
    noise = torch.Generator().manual_seed(1 + (differs == "seed"))
    parameter, master = first.clone(), nn.Parameter(first.float())
    optimizer = torch.optim.Adam([master], lr=settings.learning_rate)
    apart = []
    for num_done in (1 + index for index in rank.steps(settings.num_steps)):
        is_back = 2 * num_done == settings.num_steps  # from a checkpoint without part of the state
        if settings.rounding != "master" or (is_back and differs == "masters"):
            master.data.copy_(parameter)
        if is_back and differs == "moments":
            optimizer.state.clear()
        weight = parameter.float().requires_grad_()
        (inputs[rank.rank] @ (weight - goal)).square().mean().backward()
        assert weight.grad is not None
        dist.all_reduce(weight.grad)
        master.grad = weight.grad / rank.world_size
        optimizer.step()
        is_random = settings.rounding == "stochastic"
        parameter = stochastic(master.data, noise) if is_random else master.data.bfloat16()
        if num_done * NUM_TIMES % settings.num_steps == 0:
            dist.broadcast(of_first := parameter.clone(), 0)
            apart.append((parameter.float() - of_first.float()).norm().item())
    rank.measure("moved", (parameter.float() - first.float()).norm().item())
    rank.measure("apart", apart)
    rank.measure("loss", (inputs @ (parameter.float() - goal)).square().mean().item(), unit="loss")


def add(rank: Rank[Parts]) -> None:
    """Round parts that share a direction, add those of all ranks, and compare with float64."""
    settings, source = rank.settings, torch.Generator().manual_seed(rank.seed)
    shared = torch.randn(settings.size, generator=source)
    true, total = torch.zeros(settings.size, dtype=torch.float64), torch.zeros(settings.size)
    for index in rank.steps(settings.num_parts):
        part = shared + torch.randn(settings.size, generator=source)
        true += part
        if index % rank.world_size == rank.rank:
            seed = 1 + index * (settings.seeds == "own")
            is_nearest = settings.seeds == "nearest"
            noise = torch.Generator().manual_seed(seed)
            total += part.bfloat16() if is_nearest else stochastic(part, noise)
    dist.all_reduce(total)
    rank.measure("error", ((total - true).norm() / true.norm()).item())


def stochastic(exact: Tensor, noise: torch.Generator) -> Tensor:
    """Round fp32 to bf16, away from zero with the share of the spacing that was passed."""
    bits = exact.view(torch.int32) + torch.randint(2**16, exact.shape, generator=noise).int()
    return (bits & -(2**16)).view(torch.float32).bfloat16()


QUESTION = "What must replicas share that compute in bf16, and what must each have of its own?"
NUM_TIMES = 4  # in a run, that distances are measured


class Settings(RunSettings):
    """A linear map, the rounding of its parameters, and what the second replica has of its own."""

    width: Count = 64
    batch_size: Count = 64
    num_steps: Count = 400
    learning_rate: Factor = 0.0001
    rounding: Literal["nearest", "stochastic", "master"]
    differs: Literal["nothing", "seed", "masters", "moments"] = "nothing"

    @closed_form
    def drift(self) -> float:
        """How far apart rounding takes two replicas, if all updates are as the learning rate."""
        variance = self.learning_rate * (2.0**-8 - self.learning_rate)  # of one rounding
        return self.width * math.sqrt(2 * self.num_steps * variance)


class Parts(RunSettings):
    """Parts of a gradient, and the seeds with which they are rounded."""

    size: Count = 4096
    num_parts: Count
    seeds: Literal["own", "one", "nearest"]


timed = partial(Declaration, passes=("timed",), only_on_cpu=True)
RUNS = {
    "nearest": timed("train", 2, Settings(rounding="nearest")),
    "one_seed": timed("train", 2, Settings(rounding="stochastic")),
    "own_seeds": timed("train", 2, Settings(rounding="stochastic", differs="seed")),
    "masters": timed("train", 2, Settings(rounding="master")),
    "masters_lost": timed("train", 2, Settings(rounding="master", differs="masters")),
    "moments_lost": timed("train", 2, Settings(rounding="master", differs="moments")),
} | {
    f"{seeds}_{num}": timed("add", 2, Parts(num_parts=num, seeds=seeds))
    for seeds in ("own", "one", "nearest")
    for num in (4, 16, 64)
}
