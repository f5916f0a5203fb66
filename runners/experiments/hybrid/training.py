"""The loop of every strategy of `hybrid`: steps, their losses, and what each axis carries.

In: a rank, what it trains and how it takes a step. Out: measures.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from runners.experiments.hybrid import Settings
from runners.meters.axes import AxisMeter
from runners.ranks.rank import NUM_METERED_STEPS, Rank
from runners.training.transformer_model import next_token_step

Step = Callable[[], float | None]


def samples_of(rank: Rank[Settings], part: int) -> tuple[Tensor, Tensor]:
    """This rank's tokens and the ones that follow them: (samples, context) each."""
    settings = rank.settings
    source = torch.Generator().manual_seed(rank.seed)
    shape = (settings.batch_size, settings.context + 1)
    drawn = torch.randint(0, settings.vocabulary, shape, generator=source)
    own = drawn[part * settings.num_samples_per_rank :][: settings.num_samples_per_rank]
    tokens, targets = own[:, :-1].contiguous(), own[:, 1:].contiguous()
    tokens, targets = tokens.to(rank.device), targets.to(rank.device)
    rank.inputs(tokens, targets)
    return tokens, targets


def train(
    rank: Rank[Settings], module: nn.Module, step: Step, mesh: DeviceMesh | None = None
) -> None:
    """Take steps, count the last metered one by axis, and say how large the loss was in each."""
    # The fused Adam refuses parameters of which some are cut along one axis and some along both.
    fused = rank.plan.strategy != "fsdp_tensor"
    optimizer = torch.optim.Adam(module.parameters(), lr=rank.settings.learning_rate, fused=fused)
    rank.watch(module, optimizer)
    axes = AxisMeter(mesh) if mesh is not None else None
    losses: list[float | None] = []
    for index in rank.steps(rank.settings.num_steps):
        counts = axes is not None and rank.is_metered and index == NUM_METERED_STEPS - 1
        with axes if counts and axes is not None else nullcontext():
            losses.append(step())
            optimizer.step()
            optimizer.zero_grad()
        rank.count_samples(rank.settings.num_samples_per_rank)
    if axes is not None and rank.is_metered:
        for name, count in axes.measured().items():
            rank.measure(name, count)
    if not rank.is_metered:
        rank.measure("losses", _mean_over_ranks(rank, losses))


def _mean_over_ranks(rank: Rank[Settings], losses: list[float | None]) -> list[float]:
    """The loss of each step over the whole batch: the mean over the ranks that saw their part."""
    sums = torch.tensor([[loss or 0.0, float(loss is not None)] for loss in losses])
    sums = sums.double().to(rank.device)
    if dist.is_initialized():
        dist.all_reduce(sums)
    return [float(total / count) for total, count in sums]


def whole_step(rank: Rank[Settings], model: nn.Module, part: int) -> Step:
    """Forward and backward of a model that takes its sequences in one piece: these of `part`."""
    tokens, targets = samples_of(rank, part)
    return partial(next_token_step, model, tokens, targets)
