"""One batch that ranks share: with one loss on the whole of it, or with a loss on each part.

In `batch_split`, rank 0 holds the batch: it scatters the samples, gathers the logits and takes the
loss; beside it the same batches on a single device, the oracle. In `batch_parts`, every rank takes
its own samples and the mean loss over them, and only gradients travel: the parts are equal or not,
and their gradients are weighted by samples, by ranks, or just added up.

    python -m runners run batch_split
    python -m runners run batch_parts
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import vector_to_parameters

from proofbook.runners.api import Count, Declaration, closed_form
from proofbook.runners.closed_forms.training_settings import BatchSettings
from proofbook.runners.training import steps
from proofbook.runners.training.follow import follow_split
from proofbook.runners.training.networks import flat, flat_gradient, gradients_of
from proofbook.runners.training.rank import Rank
from proofbook.runners.training.teacher import Samples


def split(rank: Rank[SplitSettings]) -> None:
    """Build and train replicas: rank 0 scatters batches, takes the loss, scatters gradients."""
    lesson, model = steps.scaled_lesson(rank), steps.mlp_for(rank)
    optimizer = steps.optimizer_for(rank, model)
    size, whole = rank.settings.batch_size, lesson.training.features
    if rank.rank == 0:
        with rank.stage("load", "split the samples into batches", whole) as out:
            out(whole.view(-1, size, whole.shape[1]))
    for epoch in steps.epochs(
        rank, model, optimizer, lesson.validation, "epoch {epoch}: loss {loss:.4f}"
    ):
        for batch in epoch.batches(lesson.training, size):
            _step(rank, model, optimizer, batch, epoch)
    if not rank.is_metered:
        follow_split(rank, model, steps.batch_of(lesson.training, 0, size))


def _step(
    rank: Rank[SplitSettings],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Samples,
    epoch: steps.EpochProgress,
) -> None:
    """Scatter, forward, gather, loss on the whole, scatter back, backward, combine, update."""
    phase, stage, is_root = rank.phase, rank.stage, rank.rank == 0
    num_own = rank.settings.num_samples_per_rank
    operation = "scatter the batch over the ranks"
    with phase("scatter", computes=False), stage("scatter", operation, batch.features) as out:
        own = torch.empty((num_own, batch.features.shape[1]), device=rank.device)
        dist.scatter(own, list(batch.features.chunk(rank.world_size)) if is_root else None)
        out(own)
    operation = "run this rank's replica on its samples"
    with phase("forward"), stage("forward", operation, own) as out:
        logits = model(own)
        out(logits)
    operation = "gather the logits in the batch's order"
    with phase("gather", computes=False), stage("gather", operation, logits) as out:
        gathered = [torch.empty_like(logits) for _ in range(rank.world_size)]
        dist.gather(logits.detach(), gathered if is_root else None)
        if is_root:
            out(torch.cat(gathered))
    gradients = None
    if is_root:
        gradients = _whole_loss(rank, gathered, batch.labels, epoch)
    else:
        rank.count_samples(num_own)
    gradient = torch.empty_like(logits)
    operation = "scatter the gradient of the logits"
    with phase("scatter", computes=False), stage("scatter_back", operation, gradients) as out:
        parts = None if gradients is None else list(gradients.chunk(rank.world_size))
        dist.scatter(gradient, parts)
        out(gradient)
    operation = "run backward through this rank's replica"
    with phase("backward"), stage("backward", operation, gradient) as out:
        logits.backward(gradient)
        own_gradients = flat_gradient(model)
        out(own_gradients)
    with stage("combine", "sum the ranks' gradients, then update", own_gradients) as out:
        with phase("combine", computes=False):
            dist.all_reduce(own_gradients)
            vector_to_parameters(own_gradients, gradients_of(model))
        optimizer.step()
        optimizer.zero_grad()
        out(flat(model))


def _whole_loss(
    rank: Rank[SplitSettings], gathered: list[Tensor], labels: Tensor, epoch: steps.EpochProgress
) -> Tensor:
    """Take the loss over the whole batch; its gradient with respect to the logits."""
    logits = torch.cat(gathered).requires_grad_()
    operation = "compute the loss of the whole batch and its gradient"
    with rank.phase("loss"), rank.stage("loss", operation, logits) as out:
        loss = cross_entropy(logits, labels)
        loss.backward()
        epoch.add(loss, logits, labels, num_own=rank.settings.num_samples_per_rank)
        assert logits.grad is not None
        out(logits.grad)
    return logits.grad


def single(rank: Rank[SplitSettings]) -> None:
    """The oracle: one device takes every batch whole."""
    lesson = steps.scaled_lesson(rank)
    steps.train(rank, steps.mlp_for(rank), lesson, "epoch {epoch}: loss {loss:.4f}")


class SplitSettings(BatchSettings):
    """Every batch is split equally over the ranks."""

    equal_parts = (("num_samples", "batch_size"), ("batch_size", "world_size"))

    @closed_form
    def num_samples_per_rank(self) -> int:
        """How many samples of a batch each rank takes."""
        return self.batch_size // self.world_size


class _BatchSplit:
    QUESTION = (
        "Does splitting every batch over two ranks change what the model learns, and is it faster?"
    )
    RUNS = {
        "split": Declaration(
            "split", 2, SplitSettings(), has_timeline=True, can_share_device=False
        ),
        "single": Declaration("single", 1, SplitSettings(), has_timeline=True),
    }
    TRIED_WITH = {"*": {"num_epochs": 2}}


def parts(rank: Rank[PartSettings]) -> None:
    """Build and train an MLP on parts of batches, gradients weighted as set, summed over ranks."""
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


def _combine(rank: Rank[PartSettings], model: nn.Module, mine: Tensor) -> Tensor:
    """Add up the ranks' gradients, each times its weight, and put the sum into the model."""
    share = rank.settings.samples_by_rank[rank.rank] / rank.settings.batch_size
    weights = {"by_samples": share, "by_rank": 1 / rank.world_size, "none": 1.0}
    combined = mine * weights[rank.settings.weights]
    if rank.world_size > 1:
        dist.all_reduce(combined)
    vector_to_parameters(combined, gradients_of(model))
    return combined


def _ordered(rank: Rank[PartSettings], batch: Samples) -> Samples:
    """The batch; sorted by label, the classes that come last fall to the last rank."""
    if rank.settings.order == "by_label":
        return batch.take(batch.labels.argsort(stable=True))
    return batch


def _part(rank: Rank[PartSettings], batch: Samples) -> Samples:
    """This rank's samples of a batch."""
    sizes = rank.settings.samples_by_rank
    start = sum(sizes[: rank.rank])
    return batch.take(slice(start, start + sizes[rank.rank]))


def _compare(rank: Rank[PartSettings], model: nn.Module, batch: Samples) -> None:
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


class PartSettings(BatchSettings):
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
on_one = partial(Declaration, "parts", 1, passes=("timed",), label="single")


class _BatchParts:
    QUESTION = "Each rank computes the loss on its own samples: how must its gradient be weighted?"
    RUNS = {
        "own_loss": declaration(PartSettings(), has_timeline=True),
        "whole": on_one(PartSettings(num_last_samples=100)),
        "summed": timed(PartSettings(weights="none")),
        "larger_rate": on_one(PartSettings(num_last_samples=100, learning_rate=0.1)),
        "adam": timed(PartSettings(optimizer="adam", learning_rate=0.005)),
        "adam_summed": timed(PartSettings(optimizer="adam", learning_rate=0.005, weights="none")),
        "unequal": timed(PartSettings(num_last_samples=20, order="by_label")),
        "unequal_by_rank": timed(
            PartSettings(num_last_samples=20, order="by_label", weights="by_rank")
        ),
        "unequal_by_rank_shuffled": timed(PartSettings(num_last_samples=20, weights="by_rank")),
    }
    TRIED_WITH = {"*": {"num_epochs": 2}}


EXPERIMENTS = {"batch_split": _BatchSplit, "batch_parts": _BatchParts}
