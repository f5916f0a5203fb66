"""Gradient accumulation: several microbatches, one all-reduce, one update.

Two ranks take the samples of an update whole, and in microbatches. Then one update in double
precision on parts of unequal size: is the gradient that of the whole batch?

    python -m runners run accumulation
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from runners.closed_forms.training_settings import StackSettings
from runners.closed_forms.work import FLOAT_BYTES, LABEL_BYTES, mlp_parameters
from runners.core.declared.experiment import Declaration
from runners.core.declared.settings import Count, Factor, RunSettings
from runners.core.ranks.rank import Rank
from runners.core.trace.schema import Setting
from runners.training.networks import flat_gradient, mlp
from runners.training.steps import random_samples, replica_of, shard_layers, stack_for
from runners.training.transformer_model import Transformer, TransformerShape, next_token_loss


def train(rank: Rank[Settings], *, shards: bool = False) -> None:
    """Update a DDP replica; its gradients are reduced with the last microbatch, or with each."""
    settings = rank.settings
    size = settings.num_samples // settings.num_microbatches
    model = stack_for(rank, is_sharded=shards)
    features, labels = random_samples(rank, settings.num_samples)
    wrapped: Any = model if shards else replica_of(rank, model)
    if shards:
        shard_layers(rank, model)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    rank.watch(wrapped, optimizer)
    for _ in rank.steps(settings.num_updates):
        loss = 0.0
        for index in range(settings.num_microbatches):
            part = slice(index * size, (index + 1) * size)
            reduces = settings.reduces_each or index == settings.num_microbatches - 1
            if shards:
                wrapped.set_requires_gradient_sync(reduces)
            with nullcontext() if reduces or shards else wrapped.no_sync():
                own = cross_entropy(wrapped(features[part]), labels[part])
                mean = own / settings.num_microbatches
                mean.backward()
            loss += mean.item()
        optimizer.step()
        optimizer.zero_grad()
        rank.count_samples(settings.num_samples)
    rank.epoch(1, loss=loss, num_samples=settings.num_samples, parameters=model.parameters())


def gradients(rank: Rank[GradientSettings]) -> None:
    """Accumulate one update under DDP in unequal parts; compare with the gradient of all samples.

    Measures, in lengths of the whole batch's gradient: `weighted_difference`, each part's mean
    loss weighted by what it runs over; `unweighted_difference`, each part counted alike; and
    `predicted_difference`, the latter as predicted from the parts' own gradients and sizes.
    """
    source = torch.Generator().manual_seed(rank.seed)
    parts = [_part(rank, size, source) for size in rank.settings.parts]
    counts = [int((targets != IGNORED).sum()) for _, targets in parts]
    torch.manual_seed(rank.seed)
    model = _network(rank.settings).double().to(rank.device)
    inputs, targets = map(torch.cat, zip(*parts, strict=True))
    whole = _gradient(model, [(inputs, targets)], [1.0])
    total, per_rank = sum(counts), len(parts) // rank.world_size
    own = slice(rank.rank * per_rank, (rank.rank + 1) * per_rank)
    alike = [1 / len(parts) - count / total for count in counts]
    # DDP divides by the number of ranks what it adds up.
    weighted = [count * rank.world_size / total for count in counts[own]]
    found = {"predicted": _gradient(model, parts, alike)}
    replica = DistributedDataParallel(model)
    found |= {
        "weighted": _gradient(replica, parts[own], weighted) - whole,
        "unweighted": _gradient(replica, parts[own], [1 / per_rank] * per_rank) - whole,
    }
    for name, difference in found.items():
        length = torch.linalg.norm(difference) / torch.linalg.norm(whole)
        rank.measure(f"{name}_difference", length.item())


Part = tuple[Tensor, Tensor]  # one microbatch: what goes in, and what is wanted


def _gradient(model: nn.Module, parts: Sequence[Part], weights: Sequence[float]) -> Tensor:
    """The sum of the parts' gradients times their weights; DDP reduces with the last part."""
    for index, ((inputs, targets), weight) in enumerate(zip(parts, weights, strict=True), start=1):
        waits = isinstance(model, DistributedDataParallel) and index < len(parts)
        with model.no_sync() if waits else nullcontext():  # type: ignore[operator]
            (next_token_loss(model(inputs), targets) * weight).backward()
    found = flat_gradient(model)
    model.zero_grad()
    return found


def _part(rank: Rank[GradientSettings], size: int, source: torch.Generator) -> Part:
    """So many samples, or sequences of so many tokens, padded to the longest part."""
    settings = rank.settings
    if settings.task == "samples":
        inputs = torch.randn(size, settings.width, generator=source, dtype=torch.float64)
        targets = torch.randint(0, settings.num_classes, (size,), generator=source)
        return inputs.to(rank.device), targets.to(rank.device)
    shape = (NUM_SEQUENCES, max(settings.parts))
    inputs, targets = (
        torch.randint(0, settings.num_classes, shape, generator=source) for _ in range(2)
    )
    targets[:, size:] = IGNORED
    return inputs.to(rank.device), targets.to(rank.device)


def _network(settings: GradientSettings) -> nn.Module:
    width, classes = settings.width, settings.num_classes
    if settings.task == "tokens":
        return Transformer(TransformerShape(classes, max(settings.parts), width, 2, 1, 4 * width))
    return mlp((width, 4 * width, classes), norm=settings.norm)


# Under FSDP, which gathers parameters for every microbatch anyhow.
STRATEGIES = {"sharded": partial(train, shards=True)}
QUESTION = (
    "Does gradient accumulation give the update of the whole batch, and what memory does it save?"
)
NUM_SEQUENCES = 4  # in each part of tokens
IGNORED = -100  # what cross-entropy leaves out of its mean


class Settings(StackSettings):
    """A stack of equal layers, updated from several microbatches."""

    width: Count = 256
    num_layers: Count = 4
    num_samples: Count = 512
    num_microbatches: Count = 4
    reduces_each: bool = False
    num_updates: Count = 9
    learning_rate: Factor = 0.1
    equal_parts = (("num_samples", "num_microbatches"),)

    def closed_forms(self) -> dict[str, Setting]:
        """Bytes of what one layer puts out for a microbatch, of an update's samples, of layers."""
        microbatch_size = self.num_samples // self.num_microbatches
        return {
            "activation_bytes": FLOAT_BYTES * self.width * microbatch_size,
            "sample_bytes": self.num_samples * (FLOAT_BYTES * self.width + LABEL_BYTES),
            "layer_bytes": FLOAT_BYTES * mlp_parameters([self.width] * 2),
            "model_bytes": FLOAT_BYTES * mlp_parameters(self.widths),
        }


class GradientSettings(RunSettings):
    """One update in unequal microbatches, of samples or of tokens."""

    task: Literal["samples", "tokens"] = "samples"
    parts: tuple[Count, ...] = (8, 24, 40, 56, 4, 12, 20, 28)
    norm: Literal["none", "batch"] = "none"
    width: Count = 16
    num_classes: Count = 8


ddp = partial(Declaration, "train", 2, label="ddp")
metered = partial(ddp, passes=("metered",))
fsdp = partial(Declaration, "sharded", 2, passes=("metered",), can_share_device=False)
compared = partial(Declaration, "gradients", 2, passes=("timed",))
UNEQUAL_TOKENS = GradientSettings(task="tokens", parts=(3, 16, 8, 12, 5, 16, 2, 10))
RUNS = {
    "whole": ddp(Settings(num_microbatches=1)),
    "accumulated": ddp(Settings()),
    "reduced_each": ddp(Settings(reduces_each=True)),
    "accumulated_8": metered(Settings(num_microbatches=8)),
    "reduced_each_8": metered(Settings(num_microbatches=8, reduces_each=True)),
    "sharded": fsdp(Settings()),
    "sharded_reduced_each": fsdp(Settings(reduces_each=True)),
    "samples": compared(GradientSettings()),
    "samples_equal": compared(GradientSettings(parts=(24,) * 8)),
    "tokens": compared(UNEQUAL_TOKENS),
    "batch_norm": compared(GradientSettings(norm="batch", parts=(24,) * 8)),
}
ON_CUDA = {
    name: {"width": 4096, "num_samples": 8192}
    for name, declaration in RUNS.items()
    if declaration.strategy == "train"
}
