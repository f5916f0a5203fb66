"""One batch split over two ranks: scatter the samples, gather the logits, combine the gradients.

Rank 0 holds the batch and takes the loss on the whole of it. Beside it: the same batches on a
single device, the oracle.

    python -m runners run batch_split
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import vector_to_parameters

from runners.plans.experiment import RunPlan
from runners.ranks.rank import Rank
from runners.traces.schema import Setting
from runners.training.networks import flat, flat_gradient, gradients_of
from runners.training.settings import BatchSettings
from runners.training.steps import (
    Epoch,
    epochs,
    mlp_for,
    optimizer_for,
    scaled_lesson,
    train_batch,
)
from runners.training.teacher import Samples


def split(rank: Rank[Settings]) -> None:
    """Ranks share every batch; rank 0 scatters samples and gathers logits."""
    lesson, model = scaled_lesson(rank), mlp_for(rank)
    optimizer = optimizer_for(rank, model)
    size, whole = rank.settings.batch_size, lesson.training.features
    if rank.rank == 0:
        with rank.stage("load", "split the samples into batches", whole) as out:
            out(whole.view(-1, size, whole.shape[1]))
    for epoch in epochs(rank, model, optimizer, lesson.validation, LINE):
        for batch in epoch.batches(lesson.training, size):
            _step(rank, model, optimizer, batch, epoch)
    if not rank.is_metered:
        _follow(rank, model, lesson.training.take(slice(0, size)))


def _step(
    rank: Rank[Settings],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Samples,
    epoch: Epoch,
) -> None:
    """Scatter, forward, gather, loss on the whole, scatter back, backward, combine, update."""
    num_own = rank.settings.num_samples_per_rank
    with _shown(rank, "scatter", batch.features) as out:
        own = torch.empty((num_own, batch.features.shape[1]), device=rank.device)
        dist.scatter(own, _parts(rank, batch.features))
        out(own)
    with _shown(rank, "forward", own) as out:
        logits = model(own)
        out(logits)
    with _shown(rank, "gather", logits) as out:
        gathered = [torch.empty_like(logits) for _ in range(rank.world_size)]
        dist.gather(logits.detach().contiguous(), gathered if rank.rank == 0 else None)
        if rank.rank == 0:
            out(torch.cat(gathered))
    gradients = None
    if rank.rank == 0:
        gradients = _whole_loss(rank, gathered, batch.labels, epoch)
    else:
        rank.count_samples(num_own)
    gradient = torch.empty_like(logits)
    with _shown(rank, "scatter_back", gradients) as out:
        dist.scatter(gradient, _parts(rank, gradients))
        out(gradient)
    with _shown(rank, "backward", gradient) as out:
        logits.backward(gradient)
        own_gradients = flat_gradient(model)
        out(own_gradients)
    with rank.stage("combine", "sum the ranks' gradients, then update", own_gradients) as out:
        with rank.phase("combine", computes=False):
            dist.all_reduce(own_gradients)
            vector_to_parameters(own_gradients, gradients_of(model))
        optimizer.step()
        optimizer.zero_grad()
        out(flat(model))


def _parts(rank: Rank[Settings], whole: Tensor | None) -> list[Tensor] | None:
    """What rank 0 scatters; the others bring nothing."""
    if rank.rank or whole is None:
        return None
    return [part.contiguous() for part in whole.chunk(rank.world_size)]


def _whole_loss(
    rank: Rank[Settings], gathered: list[Tensor], labels: Tensor, epoch: Epoch
) -> Tensor | None:
    """Take the loss over the whole batch; its gradient with respect to the logits."""
    logits = torch.cat(gathered).requires_grad_()
    with _shown(rank, "loss", logits) as out:
        loss = cross_entropy(logits, labels)
        loss.backward()
        epoch.add(loss, logits, labels, num_own=rank.settings.num_samples_per_rank)
        assert logits.grad is not None
        out(logits.grad)
    return logits.grad


def single(rank: Rank[Settings]) -> None:
    """The oracle: one device takes every batch whole."""
    lesson, model = scaled_lesson(rank), mlp_for(rank)
    optimizer = optimizer_for(rank, model)
    for epoch in epochs(rank, model, optimizer, lesson.validation, LINE):
        for batch in epoch.batches(lesson.training, rank.settings.batch_size):
            train_batch(model, optimizer, batch, epoch)


# The phase, whether it computes, and what its stage does.
STAGES = {
    "scatter": ("scatter", False, "scatter the batch over the ranks"),
    "forward": ("forward", True, "run this rank's replica on its samples"),
    "gather": ("gather", False, "gather the logits in the batch's order"),
    "loss": ("loss", True, "compute the loss of the whole batch and its gradient"),
    "scatter_back": ("scatter", False, "scatter the gradient of the logits"),
    "backward": ("backward", True, "run backward through this rank's replica"),
}
LINE = "epoch {epoch}: loss {loss:.4f}"


@contextmanager
def _shown(
    rank: Rank[Settings], name: str, of: Tensor | None
) -> Iterator[Callable[[Tensor], None]]:
    """Mark one stage of a split step, and its phase."""
    phase, computes, operation = STAGES[name]
    with rank.phase(phase, computes=computes), rank.stage(name, operation, of) as out:
        yield out


@torch.no_grad()
def _follow(rank: Rank[Settings], model: nn.Module, batch: Samples) -> None:
    """Follow the first batch: split, forward on each rank, combine."""
    settings = rank.settings
    own = torch.empty(settings.num_samples_per_rank, settings.num_features, device=rank.device)
    if rank.rank == 0:
        with rank.predict("split", STAGES["scatter"][-1], batch.features) as out:
            dist.scatter(own, _parts(rank, batch.features))
            out(own)
    else:
        dist.scatter(own, None)
    with rank.predict(f"forward_rank_{rank.rank}", STAGES["forward"][-1], own) as out:
        logits = model(own)
        out(logits)
    if rank.rank:
        dist.gather(logits, None)
        return
    gathered = [torch.empty_like(logits) for _ in range(rank.world_size)]
    facts: dict[str, Setting] = {"num_samples_combined": settings.batch_size}
    with rank.predict("combine", STAGES["gather"][-1], logits, facts) as out:
        dist.gather(logits, gathered)
        whole = torch.cat(gathered)
        out(whole)
        facts["loss"] = cross_entropy(whole, batch.labels).item()
        facts["predicted_class"] = int(whole[0].argmax())
        facts["true_class"] = int(batch.labels[0])


QUESTION = (
    "Does splitting every batch over two ranks change what the model learns, and is it faster?"
)


class Settings(BatchSettings):
    """Every batch is split equally over the ranks."""

    @property
    def num_samples_per_rank(self) -> int:
        """Of one batch."""
        return self.batch_size // self.world_size

    def closed_forms(self) -> dict[str, Setting]:
        """The batches, and the samples of one on each rank."""
        return {**super().closed_forms(), "num_samples_per_rank": self.num_samples_per_rank}

    def check(self) -> None:
        """Refuse samples that leave a batch unfilled, and a batch without equal parts."""
        self.divides(("num_samples", "batch_size"), ("batch_size", "world_size"))


RUNS = {
    "split": RunPlan("split", 2, Settings(), can_share_device=False),
    "single": RunPlan("single", 1, Settings()),
}
TRIED_WITH = {"*": {"num_epochs": 2}}
