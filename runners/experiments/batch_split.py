"""One batch split over two ranks: scatter the samples, gather the logits, combine the gradients.

Rank 0 holds the batch and takes the loss on the whole of it. Beside it: the same batches on a
single device, the oracle.

    python -m runners run batch_split
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import vector_to_parameters

from runners.closed_forms.training_settings import BatchSettings
from runners.core.declared.experiment import Declaration
from runners.core.declared.settings import closed_form
from runners.core.ranks.rank import Rank
from runners.training import steps
from runners.training.follow import follow_split
from runners.training.networks import flat, flat_gradient, gradients_of
from runners.training.teacher import Samples


def split(rank: Rank[Settings]) -> None:
    """Ranks share every batch; rank 0 scatters samples and gathers logits."""
    lesson, model = steps.scaled_lesson(rank), steps.mlp_for(rank)
    optimizer = steps.optimizer_for(rank, model)
    size, whole = rank.settings.batch_size, lesson.training.features
    if rank.rank == 0:
        with rank.stage("load", "split the samples into batches", whole) as out:
            out(whole.view(-1, size, whole.shape[1]))
    for epoch in steps.epochs(rank, model, optimizer, lesson.validation, LINE):
        for batch in epoch.batches(lesson.training, size):
            _step(rank, model, optimizer, batch, epoch)
    if not rank.is_metered:
        follow_split(rank, model, steps.batch_of(lesson.training, 0, size))


def _step(
    rank: Rank[Settings],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Samples,
    epoch: steps.Epoch,
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
    rank: Rank[Settings], gathered: list[Tensor], labels: Tensor, epoch: steps.Epoch
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


def single(rank: Rank[Settings]) -> None:
    """The oracle: one device takes every batch whole."""
    lesson = steps.scaled_lesson(rank)
    steps.train(rank, steps.mlp_for(rank), lesson, LINE)


QUESTION = (
    "Does splitting every batch over two ranks change what the model learns, and is it faster?"
)
LINE = "epoch {epoch}: loss {loss:.4f}"


class Settings(BatchSettings):
    """Every batch is split equally over the ranks."""

    equal_parts = (("num_samples", "batch_size"), ("batch_size", "world_size"))

    @closed_form
    def num_samples_per_rank(self) -> int:
        """How many samples of a batch each rank takes."""
        return self.batch_size // self.world_size


RUNS = {
    "split": Declaration("split", 2, Settings(), has_timeline=True, can_share_device=False),
    "single": Declaration("single", 1, Settings(), has_timeline=True),
}
TRIED_WITH = {"*": {"num_epochs": 2}}
