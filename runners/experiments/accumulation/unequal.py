"""One gradient accumulated in unequal parts, weighted and not, against that of the whole batch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.accumulation import GradientSettings
from runners.ranks.rank import Rank
from runners.training.networks import mlp
from runners.training.transformer_model import Transformer, TransformerShape, next_token_loss

NUM_SEQUENCES = 4  # in each part of tokens
IGNORED = -100  # what cross-entropy leaves out of its mean


@dataclass(frozen=True)
class Part:
    """One microbatch: what goes in, what is wanted, and how many values its mean runs over."""

    inputs: Tensor
    targets: Tensor
    count: int


def gradients(rank: Rank[GradientSettings]) -> None:
    """Accumulate one update under DDP in unequal parts; compare with the gradient of all samples.

    Measures, in lengths of the whole batch's gradient: `weighted_difference`, each part's mean
    loss weighted by what it runs over; `unweighted_difference`, each part counted alike; and
    `predicted_difference`, the latter as predicted from the parts' own gradients and sizes.
    """
    source = torch.Generator().manual_seed(rank.seed)
    parts = _parts(rank, source)
    torch.manual_seed(rank.seed)
    model = _network(rank).double().to(rank.device)
    whole = joined(parts)
    oracle = gradient_of(model, [(whole, 1.0)])
    total = sum(part.count for part in parts)
    alike = [(part, 1 / len(parts) - part.count / total) for part in parts]
    predicted = gradient_of(model, alike)
    per_rank = len(parts) // rank.world_size
    own = parts[rank.rank * per_rank : (rank.rank + 1) * per_rank]
    # DDP divides by the number of ranks what it adds up.
    weighted = [(part, part.count * rank.world_size / total) for part in own]
    unweighted = [(part, 1 / per_rank) for part in own]
    length = torch.linalg.norm(oracle)
    for name, weighed in (("weighted", weighted), ("unweighted", unweighted)):
        gradient = gradient_of(DistributedDataParallel(copy.deepcopy(model)), weighed)
        apart = torch.linalg.norm(gradient - oracle) / length
        rank.measure(f"{name}_difference", apart.item())
    rank.measure("predicted_difference", (torch.linalg.norm(predicted) / length).item())
    rank.measure("num_counted", [part.count for part in parts])


def gradient_of(model: nn.Module, weighed: Sequence[tuple[Part, float]]) -> Tensor:
    """The sum of the parts' gradients times their weights; DDP reduces with the last part."""
    for index, (part, weight) in enumerate(weighed):
        is_last = index == len(weighed) - 1
        waits = isinstance(model, DistributedDataParallel) and not is_last
        with model.no_sync() if waits else nullcontext():  # type: ignore[operator]
            (next_token_loss(model(part.inputs), part.targets) * weight).backward()
    found = torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    return found


def _parts(rank: Rank[GradientSettings], source: torch.Generator) -> list[Part]:
    """The microbatches of all ranks, the same on each."""
    make = _tokens if rank.settings.task == "tokens" else _samples
    parts = [make(rank, size, source) for size in rank.settings.parts]
    return [Part(p.inputs.to(rank.device), p.targets.to(rank.device), p.count) for p in parts]


def _samples(rank: Rank[GradientSettings], size: int, source: torch.Generator) -> Part:
    width, classes = rank.settings.width, rank.settings.num_classes
    inputs = torch.randn(size, width, generator=source, dtype=torch.float64)
    return Part(inputs, torch.randint(0, classes, (size,), generator=source), size)


def _tokens(rank: Rank[GradientSettings], length: int, source: torch.Generator) -> Part:
    """Sequences of one length, padded to the longest; padding is not counted."""
    shape = (NUM_SEQUENCES, max(rank.settings.parts))
    inputs, targets = (
        torch.randint(0, rank.settings.num_classes, shape, generator=source) for _ in range(2)
    )
    targets[:, length:] = IGNORED
    return Part(inputs, targets, NUM_SEQUENCES * length)


def _network(rank: Rank[GradientSettings]) -> nn.Module:
    settings = rank.settings
    width, classes = settings.width, settings.num_classes
    if settings.task == "tokens":
        return Transformer(TransformerShape(classes, max(settings.parts), width, 2, 1, 4 * width))
    layers = list(mlp((width, 4 * width, classes)))
    norms = [nn.BatchNorm1d(4 * width)] if settings.norm == "batch" else []
    return nn.Sequential(layers[0], *norms, *layers[1:])


def joined(parts: Sequence[Part]) -> Part:
    """All parts as one batch."""
    return Part(
        torch.cat([part.inputs for part in parts]),
        torch.cat([part.targets for part in parts]),
        sum(part.count for part in parts),
    )
