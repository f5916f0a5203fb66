"""Model parallelism by layers: four ranks, each with its own layers, one batch in flight.

`full` has 100 million parameters and shows memory, bytes passed and who waits; `curve` has the same
shape, narrower, and trains to the end.

    python -m runners run model_parallel
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from proofbook.runners.api import Count, Declaration, Factor, FactorOrZero, Setting, closed_form
from proofbook.runners.closed_forms.training_settings import TeacherSettings
from proofbook.runners.training import steps
from proofbook.runners.training.networks import (
    ResidualLayer,
    description,
    flat,
    grade,
    gradients_of,
)
from proofbook.runners.training.rank import Rank
from proofbook.runners.training.stages import through_stage
from proofbook.runners.training.teacher import Lesson, Samples


def stages(rank: Rank[Settings]) -> None:
    """Build and train a stage a rank, one batch in flight: send activations on, gradients back."""
    settings, own = rank.settings, _layers(rank, rank.rank)
    # Between minus one and one: many layers in a row learn badly from features of one sign.
    lesson = steps.scaled_lesson(rank, low=-1.0)
    is_last = rank.rank == rank.world_size - 1
    middle = [[stage] for stage in range(rank.world_size) for _ in range(HIDDEN_LAYERS_PER_STAGE)]
    _describe(rank, [[0], *middle, [rank.world_size - 1]])
    optimizer = steps.optimizer_for(rank, own)
    rank.watch(own, optimizer)
    _show_loading(rank, lesson, own)
    record = partial(rank.stage, "forward", "run this rank's layers on its input")
    for index in rank.epochs(settings.num_epochs):
        epoch = steps.EpochProgress(rank, index)
        for batch in epoch.batches(lesson.training, settings.batch_size):
            taken, given = _forward(rank, own, batch.features, record)
            loss = None
            if is_last:
                with rank.phase("loss"):
                    loss = cross_entropy(given, batch.labels)
                epoch.add(loss, given, batch.labels)
            else:
                rank.count_samples(settings.batch_size)
            _backward(rank, own, taken, given, loss)
            what = "update this rank's own layers"
            with rank.phase("optimizer"), rank.stage("update", what, gradients_of(own)[0]) as out:
                optimizer.step()
                out(next(own.parameters()))
            optimizer.zero_grad()
        with torch.no_grad():
            _, given = _forward(rank, own, lesson.validation.features, record)
        if is_last:
            labels = lesson.validation.labels
            epoch.close((len(labels), *grade(given, labels)))
    if not rank.is_metered:
        _predict(rank, own, lesson.validation)


def _forward(
    rank: Rank[Settings], own: nn.Module, features: Tensor, record: Callable[..., Any]
) -> tuple[Tensor, Tensor]:
    """What comes into this rank's layers and goes out: (batch, width) each, or logits."""

    def layers(taken: Tensor) -> Tensor:
        with record(of=taken) as out:
            given: Tensor = own(taken)
            out(given)
        return given

    return through_stage(rank, layers, features, (len(features), rank.settings.width))


def _backward(
    rank: Rank[Settings], own: nn.Module, taken: Tensor, given: Tensor, loss: Tensor | None
) -> None:
    """Receive the gradient, differentiate, send the input's gradient to the previous rank."""
    gradient = None
    if loss is None:
        gradient = rank.receive(given.shape, source=rank.rank + 1)
    operation = "run backward through this rank's layers"
    known = given if gradient is None else gradient
    with rank.phase("backward"), rank.stage("backward", operation, known) as out:
        (given if loss is None else loss).backward(gradient)
        out(gradients_of(own)[0])
    if rank.rank:
        assert taken.grad is not None
        rank.send(taken.grad, to=rank.rank - 1)


def single(rank: Rank[Settings]) -> None:
    """The oracle: the same layers, all on one device."""
    settings, lesson = rank.settings, steps.scaled_lesson(rank, low=-1.0)
    model = nn.Sequential(*(_layers(rank, stage) for stage in range(settings.num_stages)))
    _describe(rank, [[0]] * settings.num_layers)
    steps.train(rank, model, lesson, is_sharded=True)


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


def _describe(rank: Rank[Settings], held_by: list[list[int]]) -> None:
    settings = rank.settings
    hidden = [settings.width] * (settings.num_layers - 1)
    rank.describe(description([settings.num_features, *hidden, settings.num_classes], held_by))


def _show_loading(rank: Rank[Settings], lesson: Lesson, own: nn.Module) -> None:
    """The first two stages of the data's way: samples into batches, layers onto ranks."""
    whole = lesson.training.features
    with rank.stage("load", "take one batch of the samples", whole) as out:
        if rank.rank == 0:
            out(whole[: rank.settings.batch_size])
    with rank.stage("partition", "keep this rank's layers of the whole model") as out:
        out(flat(own))


@torch.no_grad()
def _predict(rank: Rank[Settings], own: nn.Module, validation: Samples) -> None:
    """Follow one validation batch through the layers of all ranks."""
    batch = validation.take(slice(0, rank.settings.batch_size))
    if rank.rank == 0:
        what = "take one batch of validation samples"
        with rank.predict("input", what, batch.features) as out:
            out(batch.features)
    name, what = f"forward_rank_{rank.rank}", "run this rank's layers"
    _, logits = _forward(rank, own, batch.features, partial(rank.predict, name, what))
    if rank.rank == rank.world_size - 1:
        with rank.predict("softmax", "turn logits into probabilities", logits) as out:
            out(logits.softmax(dim=1))


QUESTION = "What does it take to train one model whose layers are placed on four ranks?"
HIDDEN_LAYERS_PER_STAGE = 5


class Settings(TeacherSettings):
    """A deep network with residual layers, as many on each stage."""

    num_samples: Count = 256
    num_validation_samples: Count = 64
    num_features: Count = 100
    num_classes: Count = 10
    teacher_temperature: Factor = 0.05
    width: Count = 2236
    num_stages: Count = 4
    batch_size: Count = 32
    num_epochs: Count = 1
    learning_rate: Factor = 0.05
    momentum: FactorOrZero = 0.0

    def forced(self) -> dict[str, Setting]:
        """Each rank has one stage."""
        return {"num_stages": self.world_size} if self.strategy == "stages" else {}

    @closed_form
    def num_layers(self) -> int:
        """Linear layers: those of every stage, and the first and the last."""
        return self.num_stages * HIDDEN_LAYERS_PER_STAGE + 2


CURVE = Settings(
    width=64,
    num_samples=8000,
    num_validation_samples=1000,
    batch_size=64,
    num_epochs=5,
    learning_rate=0.02,
    momentum=0.9,
)
RUNS = {
    "full": Declaration("stages", 4, Settings(), keeps_steps=True, has_timeline=True),
    "full_single": Declaration("single", 1, Settings(), keeps_steps=True),
    "curve": Declaration("stages", 4, CURVE, passes=("timed",), has_timeline=True),
    "single": Declaration("single", 1, CURVE, passes=("timed",)),
}
SMALLER, SHORTER = {"width": 1000}, {"num_epochs": 2}
TRIED_WITH = {"full": SMALLER, "full_single": SMALLER, "curve": SHORTER, "single": SHORTER}
