"""What becomes of training when more ranks make the global batch larger, and how to avoid it.

Four ranks train the classifier of `ddp`, whose run `ddp_fp64` keeps the global batch of one device.
In `global_batch`, each rank keeps the batch of the one device, so that fewer updates are left. In
`batch_and_rate`, one rank and several train until the same number of samples is seen, with other
learning rates; in the `gentle` runs the rate is so small that parameters hardly move, which is
where linear scaling follows from arithmetic. In `accumulation`, two ranks take the samples of an
update whole, and in microbatches; then one update in double precision on parts of unequal size: is
the gradient that of the whole batch?

    python -m runners run global_batch
    python -m runners run batch_and_rate
    python -m runners run accumulation
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from proofbook.runners.api import Count, Declaration, Factor, RunSettings, Setting
from proofbook.runners.closed_forms.shape import FLOAT_BYTES, LABEL_BYTES, mlp_parameters
from proofbook.runners.closed_forms.training_settings import GlobalBatchSettings, StackSettings
from proofbook.runners.training import steps
from proofbook.runners.training.networks import flat_gradient, mlp
from proofbook.runners.training.rank import Rank
from proofbook.runners.training.transformer_model import SmallGPT, TransformerShape, next_token_loss


def keep_rank_batch(rank: Rank[PartedSettings]) -> None:
    """Build and train an MLP under DDP; an update adds up parts, reduced with the last or each."""
    settings = rank.settings
    lesson = steps.scaled_lesson(rank)
    samples, model = steps.shard_of(rank, lesson.training), steps.mlp_for(rank)
    replica = steps.replica_of(rank, model)
    optimizer = steps.optimizer_for(rank, model)
    line = "epoch {epoch}: {validation_accuracy:.1%} of the validation samples right"
    for epoch in steps.epochs(rank, replica, optimizer, lesson.validation, line):
        for batch in epoch.batches(samples, settings.batch_size):
            for part in range(settings.num_parts):
                own = steps.batch_of(batch, part, settings.batch_size // settings.num_parts)
                reduces = settings.reduces_each_part or part == settings.num_parts - 1
                with nullcontext() if reduces else replica.no_sync():
                    logits, loss = steps.forward_backward(replica, own, settings.num_parts)
                epoch.add(loss, logits, own.labels)
                del logits, loss  # before the next forward pass
            optimizer.step()
            optimizer.zero_grad()


class PartedSettings(GlobalBatchSettings):
    """A small classifier, updated from a batch that is taken whole or in parts."""

    batch_size: Count = 100
    num_parts: Count = 1
    reduces_each_part: bool = False
    equal_parts = (("batch_size", "num_parts"),)


in_parts = partial(Declaration, "train", 4, label="ddp")
whole = partial(in_parts, passes=("timed",))


class _GlobalBatch:
    QUESTION = "What changes when each rank keeps the batch size that one device had?"
    STRATEGIES = {"train": keep_rank_batch}
    RUNS = {
        "grown": whole(PartedSettings()),
        "grown_scaled": whole(PartedSettings(learning_rate=0.4)),
        "accumulated": in_parts(PartedSettings(num_parts=4)),
        "reduced_each": in_parts(PartedSettings(num_parts=4, reduces_each_part=True)),
    }
    TRIED_WITH = {"*": {"num_samples": 2000, "num_epochs": 2}}


def fixed(rank: Rank[RateSettings]) -> None:
    """The rate that one rank had, however many there are."""
    _train_with_rates(rank, lambda _: rank.settings.learning_rate)


def scaled(rank: Rank[RateSettings]) -> None:
    """The rate times the ranks, from the first update on."""
    _train_with_rates(rank, lambda _: rank.settings.learning_rate * rank.world_size)


def warmed(rank: Rank[WarmedRateSettings]) -> None:
    """From the rate of one rank up to the rate times the ranks."""
    first, num_updates = rank.settings.learning_rate, rank.settings.num_warm_up_updates
    highest = first * rank.world_size
    _train_with_rates(rank, lambda index: first + min(1.0, index / num_updates) * (highest - first))


def _train_with_rates(rank: Rank[RateSettings], rate_of: Callable[[int], float]) -> None:
    """Train with the rate of each update; look at the validation samples now and then."""
    settings = rank.settings
    lesson = steps.scaled_lesson(rank)
    samples = steps.shard_of(rank, lesson.training)
    model = steps.mlp_for(rank)
    replica = steps.replica_of(rank, model) if rank.world_size > 1 else model
    optimizer = steps.optimizer_for(rank, model)
    rank.watch(replica, optimizer)
    rank.measure("first_loss", steps.validate(model, lesson.validation)[1], unit="loss")
    epoch, losses, rates = steps.EpochProgress(rank, 1), [], []
    num_batches = len(samples.labels) // settings.batch_size
    between = settings.num_updates // settings.num_looks
    for index in rank.steps(settings.num_updates):
        rates.append(rate_of(index))
        optimizer.param_groups[0]["lr"] = rates[-1]
        batch = steps.batch_of(samples, index % num_batches, settings.batch_size)
        steps.train_batch(replica, optimizer, batch, epoch)
        if (index + 1) % between == 0:
            losses.append(steps.validate(model, lesson.validation)[1])
    epoch.close(steps.validate(model, lesson.validation))
    rank.measure("validation_losses", losses, unit="loss")
    rank.measure("first_rate", rates[0])
    rank.measure("last_rate", rates[-1])
    rank.measure("num_updates_done", len(rates), unit="updates")


class RateSettings(GlobalBatchSettings):
    """A small classifier, and the learning rate of one rank."""

    num_samples: Count = 6400
    num_epochs: Count = 2
    num_looks: Count = 8
    learning_rate: Factor = 0.05
    equal_parts = (("num_samples", "global_batch_size"), ("num_updates", "num_looks"))


class WarmedRateSettings(RateSettings):
    """The learning rate rises over the first updates."""

    num_warm_up_updates: Count


timed = partial(Declaration, passes=("timed",), keeps_steps=True)
GENTLE = RateSettings(num_epochs=1, learning_rate=0.001, momentum=0.0)


class _BatchAndRate:
    QUESTION = (
        "How should the learning rate change with the ranks when each rank brings its own batch?"
    )
    RUNS = {
        "one": timed("fixed", 1, RateSettings()),
        "fixed": timed("fixed", 4, RateSettings()),
        "scaled": timed("scaled", 4, RateSettings()),
        "warmed": timed("warmed", 4, WarmedRateSettings(num_warm_up_updates=32)),
        "fixed_eight": timed("fixed", 8, RateSettings(), full=True),
        "scaled_eight": timed("scaled", 8, RateSettings(), full=True),
        "warmed_eight": timed("warmed", 8, WarmedRateSettings(num_warm_up_updates=16), full=True),
        "one_gentle": timed("fixed", 1, GENTLE),
        "fixed_gentle": timed("fixed", 4, GENTLE),
        "scaled_gentle": timed("scaled", 4, GENTLE),
    }
    TRIED_WITH = {"*": {"num_samples": 3200}}


def accumulate(rank: Rank[MicrobatchSettings], *, shards: bool = False) -> None:
    """Build and train a stack by DDP, or FSDP if `shards`; the last microbatch reduces, or each."""
    settings = rank.settings
    size = settings.num_samples // settings.num_microbatches
    model = steps.stack_for(rank, is_sharded=shards)
    features, labels = steps.random_samples(rank, settings.num_samples)
    wrapped: Any = model if shards else steps.replica_of(rank, model)
    if shards:
        steps.shard_layers(rank, model)
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
    """Record by how much a gradient from unequal parts under DDP differs from the whole batch's.

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
    differences = {"predicted": _gradient(model, parts, alike)}
    replica = DistributedDataParallel(model)
    differences |= {
        "weighted": _gradient(replica, parts[own], weighted) - whole,
        "unweighted": _gradient(replica, parts[own], [1 / per_rank] * per_rank) - whole,
    }
    for name, difference in differences.items():
        length = torch.linalg.norm(difference) / torch.linalg.norm(whole)
        rank.measure(f"{name}_difference", length.item())


Part = tuple[Tensor, Tensor]  # one microbatch: what goes in, and what is wanted


def _gradient(model: nn.Module, parts: Sequence[Part], weights: Sequence[float]) -> Tensor:
    """The sum of the parts' gradients times their weights; DDP reduces with the last part."""
    for index, ((inputs, targets), weight) in enumerate(zip(parts, weights, strict=True), start=1):
        waits = isinstance(model, DistributedDataParallel) and index < len(parts)
        with model.no_sync() if waits else nullcontext():  # type: ignore[operator]
            (next_token_loss(model(inputs), targets) * weight).backward()
    gradient = flat_gradient(model)
    model.zero_grad()
    return gradient


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
        return SmallGPT(TransformerShape(classes, max(settings.parts), width, 2, 1, 4 * width))
    return mlp((width, 4 * width, classes), norm=settings.norm)


NUM_SEQUENCES = 4  # in each part of tokens
IGNORED = -100  # what cross-entropy leaves out of its mean


class MicrobatchSettings(StackSettings):
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
        """By name, of the settings: bytes of a layer's output, samples, a layer, the model."""
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


class _Accumulation:
    QUESTION = (
        "Does gradient accumulation give the update of the whole batch, "
        "and what memory does it save?"
    )
    # FSDP gathers parameters for every microbatch anyhow.
    STRATEGIES = {"train": accumulate, "sharded": partial(accumulate, shards=True)}
    RUNS = {
        "whole": ddp(MicrobatchSettings(num_microbatches=1)),
        "accumulated": ddp(MicrobatchSettings()),
        "reduced_each": ddp(MicrobatchSettings(reduces_each=True)),
        "accumulated_8": metered(MicrobatchSettings(num_microbatches=8)),
        "reduced_each_8": metered(MicrobatchSettings(num_microbatches=8, reduces_each=True)),
        "sharded": fsdp(MicrobatchSettings()),
        "sharded_reduced_each": fsdp(MicrobatchSettings(reduces_each=True)),
        "samples": compared(GradientSettings()),
        "samples_equal": compared(GradientSettings(parts=(24,) * 8)),
        "tokens": compared(UNEQUAL_TOKENS),
        "batch_norm": compared(GradientSettings(norm="batch", parts=(24,) * 8)),
    }
    ON_CUDA = {
        run: {"width": 4096, "num_samples": 8192}
        for run in ("whole", "accumulated", "reduced_each", "accumulated_8", "reduced_each_8")
    }


EXPERIMENTS = {
    "global_batch": _GlobalBatch,
    "batch_and_rate": _BatchAndRate,
    "accumulation": _Accumulation,
}
