"""A batch that does not fit: what keeps its activations within one device's memory.

A small model and a batch so large that activations fill the memory. Each run is made once without a
limit, and once under a budget per rank.

    python -m runners run large_batch
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

from proofbook.runners.api import Count, Declaration, Factor, RunSettings, Setting
from proofbook.runners.closed_forms.shape import FLOAT_BYTES, LABEL_BYTES, mlp_parameters
from proofbook.runners.training.networks import residual_mlp
from proofbook.runners.training.rank import Rank
from proofbook.runners.training.steps import batch_of, shard_of, stack_for, validate
from proofbook.runners.training.teacher import Samples, largest_feature


def train(rank: Rank[Settings]) -> None:
    """Build and train a network on a batch cut over ranks and microbatches, weighted by share.

    So the gradients of all parts add up to that of the mean loss over the whole batch.
    """
    settings = rank.settings
    size = settings.batch_size // settings.num_parts  # of a part
    model = stack_for(rank, build=residual_mlp)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    rank.watch(model, optimizer)
    with rank.phase("samples"):
        draw = partial(largest_feature, settings.num_features, settings.num_classes)
        whole = draw(settings.batch_size, rank.seed)
        training = _own(rank, shard_of(rank, whole))
        validation = _own(rank, draw(settings.num_validation_samples, rank.seed + 1))
    del whole
    for epoch in rank.epochs(settings.num_epochs):
        for _ in rank.steps(1):
            losses = []
            for index in range(settings.num_microbatches):
                part = batch_of(training, index, size)
                loss = cross_entropy(model(part.features), part.labels)
                (loss * (size / settings.batch_size)).backward()
                losses.append(loss.item() * len(part.labels))
                del loss  # and with it the last of this part's activations
            if rank.world_size > 1:
                with rank.phase("all_reduce", computes=False):
                    for parameter in model.parameters():
                        dist.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad()
            rank.count_samples(len(training.labels))
            mean = sum(losses) / len(training.labels)
            rank.step_loss(mean)
        graded = None
        if rank.rank == 0 and epoch == settings.num_epochs and not rank.is_metered:
            with rank.phase("validation"):
                graded = validate(model, validation)
        rank.epoch(
            epoch,
            loss=mean,
            num_samples=len(training.labels),
            validation=graded,
            parameters=model.parameters(),
        )
        print(f"epoch {epoch}: loss {mean:.4f} on rank {rank.rank}")


def _own(rank: Rank[Settings], samples: Samples) -> Samples:
    """A copy on this rank's device, so that the whole batch it was cut from can be freed."""
    own = Samples(samples.features.clone(), samples.labels.clone()).to(rank.device)
    rank.inputs(own.features, own.labels)
    return own


QUESTION = "Which techniques train on a batch whose activations do not fit one device's memory?"


class Settings(RunSettings):
    """A residual network, and the parts in which one batch goes through it."""

    batch_size: Count = 80000
    num_validation_samples: Count = 1000
    num_features: Count = 16
    width: Count = 64
    num_residual_layers: Count = 5
    num_classes: Count = 10
    num_epochs: Count = 8  # the batch holds all samples, so an epoch is one step
    learning_rate: Factor = 1.0
    num_microbatches: Count = 1
    equal_parts = (("batch_size", "num_parts"),)

    @property
    def widths(self) -> list[int]:
        """Of the input, of every layer's output between, and of the logits."""
        return [self.num_features, *[self.width] * (self.num_residual_layers + 1), self.num_classes]

    @property
    def num_parts(self) -> int:
        """In which the batch is cut."""
        return self.world_size * self.num_microbatches

    def closed_forms(self) -> dict[str, Setting]:
        """By name, of the settings: numbers of samples; bytes of them, activations and model."""
        # At the peak, backward goes through the last layer. Kept are what it and every residual
        # layer were given, and what each ReLU put out; beside them lie two gradients: of the
        # logits, and of the last layer's input.
        num_wide = 2 * (self.num_residual_layers + 1)
        return {
            "copies_per_parameter": 2,  # plain SGD keeps each parameter and its gradient
            "num_samples_per_rank": self.batch_size // self.world_size,
            "num_samples_at_once": self.batch_size // self.num_parts,
            "activation_bytes_per_sample": FLOAT_BYTES * (num_wide * self.width + self.num_classes),
            "sample_bytes": FLOAT_BYTES * self.num_features + LABEL_BYTES,
            "model_bytes": FLOAT_BYTES * mlp_parameters(self.widths),
        }


def _runs(strategy: str, ranks: int = 1, **settings: int) -> dict[str, Declaration[Settings]]:
    """A run without a limit, and under one between what half of the batch and all of it needs."""
    label = "parts" if strategy == "split" else ""
    free = Declaration(strategy, ranks, Settings(**settings), has_timeline=ranks > 1, label=label)
    known: dict[str, Any] = free.settings.closed_forms()
    sample_bytes = known["activation_bytes_per_sample"] + known["sample_bytes"]
    state_bytes = known["copies_per_parameter"] * known["model_bytes"]
    limited = replace(
        free,
        settings=Settings(**settings, num_epochs=3),  # it is too small in the first, or never
        budget_bytes=free.settings.batch_size * 3 // 4 * sample_bytes + state_bytes,
        expected="out_of_memory" if strategy == "single" else "completed",
        passes=("budgeted",),
    )
    name = "split_four" if ranks == 4 else strategy
    return {name: free, f"{name}_budget": limited}


RUNS = _runs("single") | _runs("split", 2) | _runs("split", 4)
RUNS |= _runs("microbatches", num_microbatches=4)
STRATEGIES = {"single": train, "split": train, "microbatches": train}
TRIED_WITH = {"*": {"num_epochs": 1}}
