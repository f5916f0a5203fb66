"""Shards of one batch, each with its own loss: what weights give the update of the whole batch.

Every rank takes its own samples of a batch and the mean loss over them; only gradients travel. The
parts are equal or not, and their gradients are weighted by samples, by ranks, or just added up.

    python -m runners run batch_parts
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import vector_to_parameters

from runners.closed_forms.training_settings import BatchSettings
from runners.core.declared.experiment import Declaration
from runners.core.declared.settings import Count, closed_form
from runners.core.ranks.rank import Rank
from runners.training import steps
from runners.training.networks import flat_gradient, gradients_of
from runners.training.teacher import Samples


def parts(rank: Rank[Settings]) -> None:
    """Train on this rank's part of every batch; one device has the whole of it."""
    size = rank.settings.batch_size
    lesson, model = steps.scaled_lesson(rank), steps.mlp_for(rank)
    optimizer, whole = steps.optimizer_for(rank, model), lesson.training.features
    with rank.stage("load", "split the samples into batches", whole, everywhere=True) as out:
        out(whole.view(-1, size, whole.shape[1]))
    if not rank.is_metered:
        _compare(rank, model, _ordered(rank, steps.batch_of(lesson.training, 0, size)))
    for epoch in steps.epochs(rank, model, optimizer, lesson.validation, LINE):
        for batch in epoch.batches(lesson.training, size):
            with rank.stage("split", "take this rank's samples", batch.features) as out:
                own = _part(rank, _ordered(rank, batch))
                out(own.features)
            with rank.stage("train", "forward, loss and backward", own.features) as out:
                logits, loss = steps.forward_backward(model, own)
                out(logits)
            mine = flat_gradient(model)
            with rank.stage("combine", SUM, mine) as out, rank.phase("combine", computes=False):
                out(_combine(rank, model, mine))
            optimizer.step()
            optimizer.zero_grad()
            epoch.add(loss, logits, own.labels)
            del logits, loss  # before the next forward pass


def _combine(rank: Rank[Settings], model: nn.Module, mine: Tensor) -> Tensor:
    """Add up the ranks' gradients, each times its weight, and put the sum into the model."""
    share = rank.settings.samples_by_rank[rank.rank] / rank.settings.batch_size
    weights = {"by_samples": share, "by_rank": 1 / rank.world_size, "none": 1.0}
    combined = mine * weights[rank.settings.weights]
    if rank.world_size > 1:
        dist.all_reduce(combined)
    vector_to_parameters(combined, gradients_of(model))
    return combined


def _ordered(rank: Rank[Settings], batch: Samples) -> Samples:
    """The batch; sorted by label, the classes that come last fall to the last rank."""
    if rank.settings.order == "by_label":
        return batch.take(batch.labels.argsort(stable=True))
    return batch


def _part(rank: Rank[Settings], batch: Samples) -> Samples:
    """This rank's samples of a batch."""
    sizes = rank.settings.samples_by_rank
    start = sum(sizes[: rank.rank])
    return batch.take(slice(start, start + sizes[rank.rank]))


def _compare(rank: Rank[Settings], model: nn.Module, batch: Samples) -> None:
    """Compare the combined gradient of the first batch with that of the batch as a whole."""
    own = _part(rank, batch)
    cross_entropy(model(own.features), own.labels).backward()
    mine = flat_gradient(model)
    with rank.predict("gradient", SUM, mine) as out:
        combined = _combine(rank, model, mine).clone()
        out(combined)
    model.zero_grad()
    cross_entropy(model(batch.features), batch.labels).backward()
    whole = flat_gradient(model)
    operation = "backward on the whole batch, for comparison"
    with rank.predict("whole_gradient", operation, batch.features) as out:
        out(
            whole,
            length_ratio=(combined.norm() / whole.norm()).item(),
            relative_distance=((combined - whole).norm() / whole.norm()).item(),
            own_relative_distance=((mine - whole).norm() / whole.norm()).item(),
        )
    model.zero_grad()


SUM = "sum the ranks' weighted gradients"
QUESTION = "Each rank computes the loss on its own samples: how must its gradient be weighted?"


class Settings(BatchSettings):
    """Every batch is dealt out to the ranks; the last takes its own number of samples."""

    num_last_samples: Count = 50  # of a batch, on the last rank; the others share the rest
    weights: Literal["by_samples", "by_rank", "none"] = "by_samples"
    order: Literal["shuffled", "by_label"] = "shuffled"
    optimizer: Literal["sgd", "adam"] = "sgd"

    @closed_form
    def samples_by_rank(self) -> list[int]:
        """How many samples of a batch each rank takes."""
        others = self.world_size - 1
        shares = [(self.batch_size - self.num_last_samples) // others] * others if others else []
        return [*shares, self.num_last_samples]

    def check(self) -> None:
        """Refuse a batch that cannot be cut so, or leaves a rank without samples."""
        size, last = self.batch_size, self.num_last_samples
        if sum(self.samples_by_rank) != size or 0 in self.samples_by_rank:
            raise ValueError(f"a batch of {size} samples cannot leave {last} to the last rank")


LINE = "epoch {epoch}: validation loss {validation_loss:.4f}, accuracy {validation_accuracy:.3f}"


declaration = partial(Declaration, "parts", 2)
timed = partial(declaration, passes=("timed",))
single = partial(Declaration, "parts", 1, passes=("timed",), label="single")
RUNS = {
    "own_loss": declaration(Settings(), has_timeline=True),
    "whole": single(Settings(num_last_samples=100)),
    "summed": timed(Settings(weights="none")),
    "larger_rate": single(Settings(num_last_samples=100, learning_rate=0.1)),
    "adam": timed(Settings(optimizer="adam", learning_rate=0.005)),
    "adam_summed": timed(Settings(optimizer="adam", learning_rate=0.005, weights="none")),
    "unequal": timed(Settings(num_last_samples=20, order="by_label")),
    "unequal_by_rank": timed(Settings(num_last_samples=20, order="by_label", weights="by_rank")),
    "unequal_by_rank_shuffled": timed(Settings(num_last_samples=20, weights="by_rank")),
}
TRIED_WITH = {"*": {"num_epochs": 2}}
