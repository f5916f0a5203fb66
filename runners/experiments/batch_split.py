"""One batch split over two ranks: scatter the rows, gather the logits, combine the gradients.

Rank 0 holds the batch. It scatters a half to each rank, gathers the logits back, takes the loss on
the whole batch and scatters the gradient of the logits; both ranks go backward and their parameter
gradients are summed into one update. Beside it: the same batches on a single device, the oracle.

    python -m runners run batch_split
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn

from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import Choice, Exchange, Work, stack_work, teacher_bytes
from runners.ranks.rank import Rank
from runners.ranks.recorder import parameter_digest
from runners.traces.records import Setting
from runners.training.networks import flat
from runners.training.steps import (
    Tally,
    batch_of,
    optimizer_for,
    perceptron_for,
    scaled_lesson,
    train_epoch,
    validate,
)
from runners.training.teacher import Lesson, Rows

QUESTION = "Does splitting every batch over two ranks change what is learnt, and is it faster?"

SETTINGS: dict[str, Setting] = {
    "num_rows": 10000,
    "num_validation_rows": 1000,
    "num_features": 20,
    "num_hidden": 128,
    "num_classes": 10,
    "batch_size": 100,
    "num_epochs": 5,
    "learning_rate": 0.05,
    "momentum": 0.9,
    "teacher_temperature": 0.05,
}


def settle(plan: RunPlan) -> RunPlan:
    """The same run with the number of batches and each rank's part of one worked out anew.

    Raises:
        ValueError: the rows cannot be cut into batches, or a batch into equal parts.
    """
    settings = dict(plan.settings)
    num_rows, batch_size = whole_number(settings, "num_rows"), whole_number(settings, "batch_size")
    if num_rows % batch_size:
        raise ValueError(f"num_rows {num_rows} cannot be cut into batches of {batch_size}")
    if batch_size % plan.world_size:
        raise ValueError(f"batch_size {batch_size} cannot be split over {plan.world_size} ranks")
    settings |= {
        "num_batches": num_rows // batch_size,
        "num_rows_per_rank": batch_size // plan.world_size,
    }
    return replace(plan, settings=settings)


RUNS = {
    "split": settle(RunPlan("split", 2, SETTINGS, can_share_device=False)),
    "single": settle(RunPlan("single", 1, SETTINGS)),
}


CHOICES = (Choice("faster", "Which step is faster, whole or split?", ("single", "split")),)


def forecast(plan: RunPlan) -> Work:
    """A small classifier: steps are the starting of operations; the peak is the drawing of rows."""
    settings = plan.settings
    features, hidden, classes, rows = (
        whole_number(settings, name)
        for name in ("num_features", "num_hidden", "num_classes", "num_rows_per_rank")
    )
    alone = stack_work((features, hidden, classes), rows, momentum=True)
    num_rows = whole_number(settings, "num_rows") + whole_number(settings, "num_validation_rows")
    work = replace(
        alone,
        peak_bytes=teacher_bytes(num_rows, features, classes),
        num_operations=alone.num_operations + 9,  # the batch is cut out, and its rows are graded
    )
    if plan.strategy == "single":
        return work
    batch, n = whole_number(settings, "batch_size"), plan.world_size
    return replace(
        work,
        num_operations=work.num_operations + 45,  # gathered, joined, cut, put back
        exchanges=(
            Exchange("scatter", 4 * batch * features, 1, n),
            Exchange("gather", 4 * batch * classes, 1, n),
            Exchange("scatter", 4 * batch * classes, 1, n),
            Exchange("all_reduce", 4 * alone.optimizer_parameters, 1, n),
        ),
        num_busy_ranks=n,
    )


def _model(rank: Rank) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The same parameters on every rank, and what updates them."""
    model = perceptron_for(rank)
    optimizer = optimizer_for(rank, model)
    rank.watch(model, optimizer)
    rank.outcome.start_parameter_digest = parameter_digest(model.parameters())
    return model, optimizer


def single(rank: Rank) -> None:
    """The oracle: one device takes every batch whole."""
    with rank.phase("build"):
        lesson = scaled_lesson(rank)
        model, optimizer = _model(rank)
    for epoch in rank.epochs(rank.settings.num_epochs):
        loss, accuracy, count = train_epoch(
            rank, model, optimizer, lesson.training, rank.settings.batch_size
        )
        _report(rank, epoch, (loss, accuracy, count), model, lesson)


def split(rank: Rank) -> None:
    """Two ranks share every batch; rank 0 hands out rows and collects logits."""
    settings = rank.settings
    with rank.phase("build"):
        lesson = scaled_lesson(rank)
        model, optimizer = _model(rank)
    if rank.rank == 0:
        shape = (settings.num_batches, settings.batch_size, settings.num_features)
        whole = lesson.training.features
        with rank.stage("load", "cut the rows into batches", whole) as out:
            out(whole.view(shape))
    for epoch in rank.epochs(settings.num_epochs):
        tally = Tally()
        for index in rank.steps(settings.num_batches):
            rows = batch_of(lesson.training, index, settings.batch_size)
            _split_step(rank, model, optimizer, rows, tally)
            rank.count_samples(settings.num_rows_per_rank)
        _report(rank, epoch, tally.seen() if rank.rank == 0 else None, model, lesson)
    if not rank.is_metered:
        _predict(rank, model, lesson)


def _split_step(
    rank: Rank, model: nn.Module, optimizer: torch.optim.Optimizer, rows: Rows, tally: Tally
) -> None:
    """Scatter, forward, gather, loss on the whole, scatter back, backward, combine, update."""
    half = rank.settings.num_rows_per_rank
    with (
        rank.phase("scatter", computes=False),
        rank.stage("scatter", "scatter the batch over the ranks", rows.features) as out,
    ):
        own = torch.empty(half, rows.features.shape[1], device=rank.device)
        dist.scatter(own, _parts(rank, rows.features))
        out(own)
    with (
        rank.phase("forward"),
        rank.stage("forward", "run this rank's replica on its rows", own) as out,
    ):
        logits = model(own)
        out(logits)
    with (
        rank.phase("gather", computes=False),
        rank.stage("gather", "gather the logits in the batch's order", logits) as out,
    ):
        gathered = [torch.empty_like(logits) for _ in range(rank.world_size)]
        dist.gather(logits.detach().contiguous(), gathered if rank.rank == 0 else None)
        if rank.rank == 0:
            out(torch.cat(gathered))
    gradients = _whole_loss(rank, gathered, rows.labels, tally)
    gradient = torch.empty_like(logits)
    with (
        rank.phase("scatter", computes=False),
        rank.stage("scatter_back", "scatter the gradient of the logits", gradients) as out,
    ):
        dist.scatter(gradient, _parts(rank, gradients))
        out(gradient)
    with (
        rank.phase("backward"),
        rank.stage("backward", "go backward through this rank's replica", gradient) as out,
    ):
        logits.backward(gradient)
        own_gradients = _gradients(model)
        out(own_gradients)
    with rank.stage("combine", "sum the ranks' gradients, then update", own_gradients) as out:
        with rank.phase("combine", computes=False):
            dist.all_reduce(own_gradients)
            _put_gradients(model, own_gradients)
        with rank.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        out(flat(model))


def _parts(rank: Rank, whole: Tensor | None) -> list[Tensor] | None:
    """What rank 0 scatters; the others bring nothing."""
    if rank.rank or whole is None:
        return None
    return [part.contiguous() for part in whole.chunk(rank.world_size)]


def _gradients(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])


def _put_gradients(model: nn.Module, combined: Tensor) -> None:
    """Give each parameter its part of the combined gradients."""
    parameters = list(model.parameters())
    parts = combined.split([p.numel() for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter)


def _whole_loss(rank: Rank, gathered: list[Tensor], labels: Tensor, tally: Tally) -> Tensor | None:
    """On rank 0: take the loss over the whole batch; its gradient with respect to the logits."""
    if rank.rank:
        return None
    logits = torch.cat(gathered).requires_grad_()
    with (
        rank.phase("loss"),
        rank.stage("loss", "take the loss of the whole batch, and its gradient", logits) as out,
    ):
        loss = nn.functional.cross_entropy(logits, labels)
        loss.backward()
        tally.add(loss.item(), logits, labels)
        assert logits.grad is not None
        out(logits.grad)
    return logits.grad


def _report(
    rank: Rank,
    epoch: int,
    seen: tuple[float, float, int] | None,
    model: nn.Module,
    lesson: Lesson,
) -> None:
    """Rank 0 knows the loss; every replica gives its digest."""
    loss, accuracy, count = seen or (None, None, 0)
    graded = validate(model, lesson.validation) if seen and not rank.is_metered else None
    rank.epoch(
        epoch,
        loss=loss,
        accuracy=accuracy,
        num_samples=count,
        validation=graded,
        parameters=model.parameters(),
    )
    if loss is not None:
        print(f"epoch {epoch}: loss {loss:.4f}")


def _predict(rank: Rank, model: nn.Module, lesson: Lesson) -> None:
    """Follow the first batch: split, forward on each rank, combine."""
    settings = rank.settings
    rows = lesson.training.take(slice(0, settings.batch_size))
    half = settings.num_rows_per_rank
    own = torch.empty(half, settings.num_features, device=rank.device)
    if rank.rank == 0:
        with rank.predict("split", "scatter the batch over the ranks", rows.features) as out:
            dist.scatter(own, _parts(rank, rows.features))
            out(own)
    else:
        dist.scatter(own, None)
    with (
        torch.no_grad(),
        rank.predict(
            f"forward_rank_{rank.rank}", "run this rank's replica on its rows", own
        ) as out,
    ):
        logits = model(own)
        out(logits)
    gathered = [torch.empty_like(logits) for _ in range(rank.world_size)]
    if rank.rank:
        dist.gather(logits, None)
        return
    facts: dict[str, Setting] = {"num_rows_combined": settings.batch_size}
    with rank.predict("combine", "gather the logits in the batch's order", logits, facts) as out:
        dist.gather(logits, gathered)
        whole = torch.cat(gathered)
        out(whole)
        facts["loss"] = nn.functional.cross_entropy(whole, rows.labels).item()
        facts["predicted_class"] = int(whole[0].argmax())
        facts["true_class"] = int(rows.labels[0])


STRATEGIES = {"split": split, "single": single}
