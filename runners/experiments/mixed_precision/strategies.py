"""One training loop in fp32, under autocast with or without a scaled loss, and in bf16."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from runners.experiments.mixed_precision import Autocast, Narrow, Scaled, Settings
from runners.experiments.mixed_precision.adam import LowAdam
from runners.experiments.mixed_precision.gradients import compare, measure_unchanged
from runners.ranks.rank import Rank
from runners.training.networks import description, flat, mlp


def train(rank: Rank[Settings]) -> None:
    """Train on one batch: the forward pass under autocast, backward from the scaled loss.

    Phases are marked, because the scaler works in backward and in the update as well.
    """
    model, features, labels = _prepared(rank)
    optimizer, scaler, precision = _optimizer(rank, model), _scaler(rank), _precision(rank)

    def mean_loss() -> Tensor:
        with precision():
            logits = model(features)
        return nn.functional.cross_entropy(logits.float(), labels)

    if not rank.is_metered and not isinstance(rank.settings, Narrow):
        compare(rank, model, lambda: scaler.scale(mean_loss()), features, labels)
    rank.watch(model, optimizer)
    before = None if rank.is_metered else flat(model).float()
    losses: list[float] = []
    for _ in rank.steps(rank.settings.num_steps):
        with rank.phase("forward"):
            loss = mean_loss()
        with rank.phase("backward"):
            scaler.scale(loss).backward()
        with rank.phase("optimizer"):
            scaler.step(optimizer)  # skips the update where a gradient is not finite
            scaler.update()
        if before is not None:
            measure_unchanged(rank, model, optimizer, before)
            before = None
        optimizer.zero_grad()
        losses.append(loss.item())
    rank.epoch(1, loss=losses[-1], num_samples=len(labels))
    if isinstance(rank.settings, Scaled) and not rank.is_metered:
        steps = [int(state["step"]) for state in optimizer.state.values()]
        rank.measure("num_updates", max(steps, default=0))
        halvings = torch.log2(torch.tensor(rank.settings.initial_scale / scaler.get_scale()))
        rank.measure("num_halvings", round(halvings.item()))


def _precision(rank: Rank[Settings]) -> Callable[[], AbstractContextManager[object]]:
    """A context for forward passes: autocast where the run asks for it."""
    if not isinstance(rank.settings, Autocast):
        return nullcontext
    dtype = getattr(torch, rank.settings.dtype)
    return lambda: torch.autocast(rank.device.type, dtype=dtype)


def _scaler(rank: Rank[Settings]) -> torch.amp.GradScaler:
    """Scales the loss where the run asks for it; disabled, it passes everything through."""
    if isinstance(rank.settings, Scaled):
        return torch.amp.GradScaler(rank.device.type, init_scale=rank.settings.initial_scale)
    return torch.amp.GradScaler(rank.device.type, init_scale=1.0, enabled=False)


def _optimizer(rank: Rank[Settings], model: nn.Module) -> torch.optim.Optimizer:
    settings = rank.settings
    if isinstance(settings, Narrow):
        return LowAdam(model.parameters(), settings.learning_rate, settings.keeps_master)
    return torch.optim.Adam(model.parameters(), lr=settings.learning_rate)


def _prepared(rank: Rank[Settings]) -> tuple[nn.Module, Tensor, Tensor]:
    """The model, and samples with labels that a fixed random layer gives them."""
    settings = rank.settings
    widths = (settings.width,) * (settings.num_layers + 1)
    dtype = torch.bfloat16 if isinstance(settings, Narrow) else torch.float32
    rank.describe(description(widths, [[0]] * settings.num_layers, dtype))
    torch.manual_seed(rank.seed)
    model = mlp(widths, device=rank.device).to(dtype)
    with rank.phase("samples"):
        features, labels = _batch(rank)
        features = features.to(dtype)
        rank.inputs(features, labels)
    return model, features, labels


def _batch(rank: Rank[Settings]) -> tuple[Tensor, Tensor]:
    settings = rank.settings
    source = torch.Generator().manual_seed(rank.seed)
    features = torch.randn(settings.batch_size, settings.width, generator=source)
    teacher = torch.randn(settings.width, settings.width, generator=source)
    labels = (features @ teacher).argmax(1)
    return features.to(rank.device), labels.to(rank.device)


STRATEGIES = {"plain": train, "autocast": train, "scaled": train, "narrow": train}
