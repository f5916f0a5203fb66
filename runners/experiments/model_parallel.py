"""Model parallelism by layers: four ranks, each with its own layers, one batch in flight.

`full` has 100 million parameters and shows memory, bytes passed and who waits; `curve` has the same
shape, narrower, and trains to the end; `full_single` and `single` are the same models unsplit.

    python -m runners run model_parallel
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from runners.experiments._model_parallel_forecast import CHOICES, forecast
from runners.plans.experiment import RunPlan, whole_number
from runners.ranks.rank import Rank
from runners.traces.records import Setting
from runners.training.networks import ResidualLayer, description, flat, grade
from runners.training.steps import Tally, num_right, scaled_lesson, train_epoch, validate
from runners.training.teacher import Lesson, Rows

__all__ = ["CHOICES", "QUESTION", "RUNS", "STRATEGIES", "TRIED_WITH", "forecast", "settle"]

QUESTION = "What does it take to train one model whose layers live on four ranks?"

BYTES_PER_VALUE = 4
HIDDEN_LAYERS_PER_STAGE = 5
SETTINGS: dict[str, Setting] = {
    "num_features": 100,
    "num_classes": 10,
    "num_stages": 4,
    "batch_size": 64,
    "learning_rate": 0.05,
    "momentum": 0.0,
    "teacher_temperature": 0.05,
}
FULL: dict[str, Setting] = {
    **SETTINGS,
    "width": 2236,
    "batch_size": 32,
    "num_rows": 256,
    "num_validation_rows": 64,
    "num_epochs": 1,
}
CURVE: dict[str, Setting] = {
    **SETTINGS,
    "width": 64,
    "num_rows": 8000,
    "num_validation_rows": 1000,
    "num_epochs": 5,
    "momentum": 0.9,
    "learning_rate": 0.02,
}

# A try of these takes seconds only with fewer batches.
TRIED_WITH = {"full": {"num_rows": 320}, "full_single": {"num_rows": 320}}


def settle(plan: RunPlan) -> RunPlan:
    """The same run with its stages, one a rank, and its layers counted anew.

    Raises:
        ValueError: there are fewer rows than one batch has.
    """
    settings = dict(plan.settings)
    if plan.strategy == "stages":
        settings["num_stages"] = plan.world_size
    num_rows, batch_size = whole_number(settings, "num_rows"), whole_number(settings, "batch_size")
    if num_rows < batch_size:
        raise ValueError(f"num_rows {num_rows} are fewer than the {batch_size} of one batch")
    num_stages = whole_number(settings, "num_stages")
    settings["num_layers"] = num_stages * HIDDEN_LAYERS_PER_STAGE + 2
    settings["bytes_per_value"] = BYTES_PER_VALUE
    return replace(plan, settings=settings)


RUNS = {
    "full": settle(RunPlan("stages", 4, FULL, keeps_steps=True)),
    "full_single": settle(RunPlan("single", 1, FULL, keeps_steps=True, has_timeline=False)),
    "curve": settle(RunPlan("stages", 4, CURVE, passes=("timed",))),
    "single": settle(RunPlan("single", 1, CURVE, passes=("timed",))),
}


def _placement(num_stages: int) -> list[int]:
    """The rank of each linear layer: its stage's five, and the first and last at the ends."""
    middle = [s for s in range(num_stages) for _ in range(HIDDEN_LAYERS_PER_STAGE)]
    return [0, *middle, num_stages - 1]


def _widths(rank: Rank) -> list[int]:
    settings = rank.settings
    hidden = [settings.width] * (settings.num_layers - 1)
    return [settings.num_features, *hidden, settings.num_classes]


def _lesson(rank: Rank) -> Lesson:
    # Between minus one and one: many layers in a row learn badly from features of one sign.
    return scaled_lesson(rank, low=-1.0)


def _stage_model(rank: Rank, stage: int) -> nn.Sequential:
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


def _optimizer(rank: Rank, model: nn.Module) -> torch.optim.Optimizer:
    settings = rank.settings
    return torch.optim.SGD(
        model.parameters(), lr=settings.learning_rate, momentum=settings.momentum
    )


def _num_steps(rank: Rank) -> int:
    return rank.settings.num_rows // rank.settings.batch_size  # type: ignore[no-any-return]


def single(rank: Rank) -> None:
    """The oracle: the same layers, all on one device."""
    with rank.phase("build"):
        lesson = _lesson(rank)
        model = nn.Sequential(*(_stage_model(rank, s) for s in range(rank.settings.num_stages)))
    rank.describe(description(_widths(rank), [[0]] * rank.settings.num_layers))
    optimizer = _optimizer(rank, model)
    rank.watch(model, optimizer)
    for epoch in rank.epochs(rank.settings.num_epochs):
        seen = train_epoch(rank, model, optimizer, lesson.training, rank.settings.batch_size)
        _report(rank, epoch, seen, validate(model, lesson.validation))


def _batch(rank: Rank, rows: Rows, index: int) -> Rows:
    size = rank.settings.batch_size
    return rows.take(slice(index * size, (index + 1) * size))


def _report(
    rank: Rank, epoch: int, seen: tuple[float, float, int], graded: tuple[int, float, float]
) -> None:
    loss, accuracy, count = seen
    rank.epoch(epoch, loss=loss, accuracy=accuracy, num_samples=count, validation=graded)
    print(f"epoch {epoch}: loss {loss:.4f}")


class Stage:
    """The layers of one rank and its place in the line."""

    def __init__(self, rank: Rank, model: nn.Sequential) -> None:
        self.rank = rank
        self.model = model
        self.is_first = rank.rank == 0
        self.is_last = rank.rank == rank.world_size - 1
        self.width: int = rank.settings.width

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Take what comes in, compute, pass it on.

        Returns:
            What came in and what went out: activations of shape (batch, width), or logits.
        """
        rank = self.rank
        if self.is_first:
            taken = features
        else:
            taken = rank.receive((len(features), self.width), source=rank.rank - 1)
            taken.requires_grad_(torch.is_grad_enabled())
        with (
            rank.phase("forward"),
            rank.stage("forward", "run this rank's layers on what came in", taken) as out,
        ):
            given = self.model(taken)
            out(given)
        if not self.is_last:
            rank.send(given.detach(), to=rank.rank + 1)
        return taken, given

    def backward(self, taken: Tensor, given: Tensor, loss: Tensor | None) -> None:
        """Take the gradient from the rank after, go backward, pass it to the rank before."""
        rank = self.rank
        gradient = None
        if loss is None:
            gradient = rank.receive(given.shape, source=rank.rank + 1)
        with (
            rank.phase("backward"),
            rank.stage(
                "backward",
                "go backward through this rank's layers",
                given if gradient is None else gradient,
            ) as out,
        ):
            (given if loss is None else loss).backward(gradient)
            out(_gradients(self.model))
        if not self.is_first:
            assert taken.grad is not None
            rank.send(taken.grad, to=rank.rank - 1)


def _gradients(model: nn.Module) -> Tensor:
    """The gradient of a stage's first weight."""
    gradient = next(model.parameters()).grad
    assert gradient is not None
    return gradient


def stages(rank: Rank) -> None:
    """Every rank its own layers; activations go forward from rank to rank, gradients back."""
    settings = rank.settings
    with rank.phase("build"):
        lesson = _lesson(rank)
        own = _stage_model(rank, rank.rank)
    widths = _widths(rank)
    rank.describe(description(widths, [[r] for r in _placement(settings.num_stages)]))
    stage = Stage(rank, own)
    optimizer = _optimizer(rank, own)
    rank.watch(own, optimizer)
    _show_loading(rank, lesson, own)
    for epoch in rank.epochs(settings.num_epochs):
        tally = Tally()
        for index in rank.steps(_num_steps(rank)):
            batch = _batch(rank, lesson.training, index)
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
                rank.stage("update", "update this rank's own layers", _gradients(own)) as out,
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
        _predict(rank, stage, lesson)


def _show_loading(rank: Rank, lesson: Lesson, own: nn.Module) -> None:
    """The first two stages of the data's way: rows into batches, layers onto ranks."""
    whole = lesson.training.features
    with rank.stage("load", "take one batch of the rows", whole) as out:
        if rank.rank == 0:
            out(whole[: rank.settings.batch_size])
    with rank.stage("partition", "keep this rank's layers of the whole model") as out:
        out(flat(own))


@torch.no_grad()
def _predict(rank: Rank, stage: Stage, lesson: Lesson) -> None:
    """Follow one validation batch through the ranks to probabilities."""
    batch = lesson.validation.take(slice(0, rank.settings.batch_size))
    if stage.is_first:
        with rank.predict("input", "take one batch of validation rows", batch.features) as out:
            out(batch.features)
    taken = batch.features
    if not stage.is_first:
        taken = rank.receive((len(batch.labels), stage.width), source=rank.rank - 1)
    with rank.predict(f"forward_rank_{rank.rank}", "run this rank's layers", taken) as out:
        given = stage.model(taken)
        out(given)
    if not stage.is_last:
        rank.send(given, to=rank.rank + 1)
        return
    facts: dict[str, Setting] = {}
    with rank.predict("softmax", "turn logits into probabilities", given, facts) as out:
        probabilities = torch.softmax(given, dim=1)
        out(probabilities)
    facts_step = rank.outcome.prediction[-1].facts
    facts_step.update(
        {
            "predicted_class": int(probabilities[0].argmax()),
            "true_class": int(batch.labels[0]),
            "largest_probability_share": round(float(probabilities[0].max()), 6),
            "num_rows_right": num_right(given, batch.labels),
            "num_rows_shown": len(batch.labels),
        }
    )


STRATEGIES = {"single": single, "stages": stages}
