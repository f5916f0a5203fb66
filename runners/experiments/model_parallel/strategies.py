"""Every rank its own layers: activations go forward from rank to rank, gradients come back."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from runners.experiments.model_parallel import HIDDEN_LAYERS_PER_STAGE, Settings
from runners.experiments.model_parallel.shown import predict, show_loading
from runners.ranks.rank import Rank
from runners.training.networks import ResidualLayer, description, grade
from runners.training.steps import (
    Tally,
    batch_of,
    optimizer_for,
    scaled_lesson,
    train_epoch,
    validate,
)
from runners.training.teacher import Lesson


def stages(rank: Rank[Settings]) -> None:
    """Train one stage on each rank."""
    settings = rank.settings
    lesson = _lesson(rank)
    own = _layers(rank, rank.rank)
    _describe(rank, [[r] for r in _placement(settings.num_stages)])
    stage = Stage(rank, own)
    optimizer = optimizer_for(rank, own)
    rank.watch(own, optimizer)
    show_loading(rank, lesson, own)
    for epoch in rank.epochs(settings.num_epochs):
        tally = Tally()
        for index in rank.steps(settings.num_samples // settings.batch_size):
            batch = batch_of(lesson.training, index, settings.batch_size)
            taken, given = stage.forward(batch.features)
            loss = None
            if stage.is_last:
                with rank.phase("loss"):
                    loss = nn.functional.cross_entropy(given, batch.labels)
                tally.add(loss.item(), given, batch.labels)
                rank.step_loss(loss.item())
            stage.backward(taken, given, loss)
            with (
                rank.phase("optimizer"),
                rank.stage("update", "update this rank's own layers", _first_gradient(own)) as out,
            ):
                optimizer.step()
                out(next(own.parameters()))
            optimizer.zero_grad()
            rank.count_samples(settings.batch_size)
        with torch.no_grad():
            _, given = stage.forward(lesson.validation.features)
        if stage.is_last:
            labels = lesson.validation.labels
            _report(rank, epoch, tally.seen(), (len(labels), *grade(given, labels)))
    if not rank.is_metered:
        predict(rank, own, lesson.validation)


class Stage:
    """The layers of one rank and its place in the pipeline; phases end before a rank waits."""

    def __init__(self, rank: Rank[Settings], model: nn.Sequential) -> None:
        self.rank = rank
        self.model = model
        self.is_first = rank.rank == 0
        self.is_last = rank.rank == rank.world_size - 1

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Receive the activation, compute, send the result to the next rank.

        Returns:
            What came in and what went out: activations of shape (batch, width), or logits.
        """
        rank = self.rank
        if self.is_first:
            taken = features
        else:
            taken = rank.receive((len(features), rank.settings.width), source=rank.rank - 1)
            taken.requires_grad_(torch.is_grad_enabled())
        with (
            rank.phase("forward"),
            rank.stage("forward", "run this rank's layers on its input", taken) as out,
        ):
            given = self.model(taken)
            out(given)
        if not self.is_last:
            rank.send(given.detach(), to=rank.rank + 1)
        return taken, given

    def backward(self, taken: Tensor, given: Tensor, loss: Tensor | None) -> None:
        """Receive the gradient, differentiate, send the input's gradient to the previous rank."""
        rank = self.rank
        gradient = None
        if loss is None:
            gradient = rank.receive(given.shape, source=rank.rank + 1)
        operation = "run backward through this rank's layers"
        known = given if gradient is None else gradient
        with rank.phase("backward"), rank.stage("backward", operation, known) as out:
            (given if loss is None else loss).backward(gradient)
            out(_first_gradient(self.model))
        if not self.is_first:
            assert taken.grad is not None
            rank.send(taken.grad, to=rank.rank - 1)


def single(rank: Rank[Settings]) -> None:
    """The oracle: the same layers, all on one device."""
    settings = rank.settings
    lesson = _lesson(rank)
    model = nn.Sequential(*(_layers(rank, s) for s in range(settings.num_stages)))
    _describe(rank, [[0]] * settings.num_layers)
    optimizer = optimizer_for(rank, model)
    rank.watch(model, optimizer)
    for epoch in rank.epochs(settings.num_epochs):
        seen = train_epoch(rank, model, optimizer, lesson.training, settings.batch_size)
        _report(rank, epoch, seen, validate(model, lesson.validation))


def _layers(rank: Rank[Settings], stage: int) -> nn.Sequential:
    """The layers of one stage, from a seed of its own, so that split and unsplit start equal."""
    settings = rank.settings
    torch.manual_seed(rank.seed + stage)
    layers: list[nn.Module] = []
    if stage == 0:
        layers.append(nn.Linear(settings.num_features, settings.width, device=rank.device))
    layers += [ResidualLayer(settings.width, rank.device) for _ in range(HIDDEN_LAYERS_PER_STAGE)]
    if stage == settings.num_stages - 1:
        layers.append(nn.Linear(settings.width, settings.num_classes, device=rank.device))
    return nn.Sequential(*layers)


def _placement(num_stages: int) -> list[int]:
    """The rank of each linear layer: its stage's five, and the first and last at the ends."""
    middle = [s for s in range(num_stages) for _ in range(HIDDEN_LAYERS_PER_STAGE)]
    return [0, *middle, num_stages - 1]


def _describe(rank: Rank[Settings], held_by: list[list[int]]) -> None:
    settings = rank.settings
    hidden = [settings.width] * (settings.num_layers - 1)
    rank.describe(description([settings.num_features, *hidden, settings.num_classes], held_by))


def _lesson(rank: Rank[Settings]) -> Lesson:
    # Between minus one and one: many layers in a row learn badly from features of one sign.
    return scaled_lesson(rank, low=-1.0)


def _first_gradient(model: nn.Module) -> Tensor:
    """The gradient of a stage's first weight."""
    gradient = next(model.parameters()).grad
    assert gradient is not None
    return gradient


def _report(
    rank: Rank[Settings],
    epoch: int,
    seen: tuple[float, float, int],
    graded: tuple[int, float, float],
) -> None:
    loss, accuracy, count = seen
    rank.epoch(epoch, loss=loss, accuracy=accuracy, num_samples=count, validation=graded)
    print(f"epoch {epoch}: loss {loss:.4f}")


STRATEGIES = {"single": single, "stages": stages}
