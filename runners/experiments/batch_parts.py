"""Parts of one batch, each with its own loss: what each part must weigh to give the batch's update.

Every rank takes its own rows of a batch and the mean loss over them; only gradients travel. The
parts are equal or not, and their gradients are weighted by rows, by ranks, or just added up. Beside
them: one device on the whole batch, and one with a larger learning rate.

    python -m runners run batch_parts
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from runners.experiments.batch_split import SETTINGS as BATCH_SPLIT
from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import Choice, Exchange, Work, stack_work, teacher_bytes
from runners.ranks.rank import Rank
from runners.ranks.recorder import parameter_digest
from runners.traces.records import Setting
from runners.training.steps import (
    Tally,
    batch_of,
    optimizer_for,
    perceptron_for,
    scaled_lesson,
    validate,
)
from runners.training.teacher import Lesson, Rows

QUESTION = "Each rank takes the loss on its own rows: what must its gradient weigh in the update?"
FULL = True

TAKEN_OVER = frozenset(BATCH_SPLIT) - {"num_rows_per_rank", "num_batches"}
SETTINGS: dict[str, Setting] = {
    **{name: value for name, value in BATCH_SPLIT.items() if name in TAKEN_OVER},
    "num_last_rows": 50,  # of a batch, on the last rank; the others share what is left
    "weights": "by_rows",
    "order": "shuffled",
    "optimizer": "sgd",
}
WHOLE: dict[str, Setting] = {**SETTINGS, "num_last_rows": 100}
UNEQUAL: dict[str, Setting] = {**SETTINGS, "num_last_rows": 20, "order": "by_label"}
ADAM: dict[str, Setting] = {**SETTINGS, "optimizer": "adam", "learning_rate": 0.005}


def settle(plan: RunPlan) -> RunPlan:
    """The same run with the rows of each rank and the number of batches worked out anew.

    Raises:
        ValueError: the rows cannot be cut so.
    """
    settings = dict(plan.settings)
    size, last = whole_number(settings, "batch_size"), whole_number(settings, "num_last_rows")
    others = plan.world_size - 1
    shares = [(size - last) // others] * others if others else []
    if sum(shares) + last != size or 0 in shares:
        raise ValueError(f"a batch of {size} rows cannot leave {last} to the last rank")
    settings["rows_by_rank"] = [*shares, last]
    settings["num_batches"] = whole_number(settings, "num_rows") // size
    return replace(plan, settings=settings)


def _timed(world_size: int, settings: dict[str, Setting]) -> RunPlan:
    return settle(RunPlan("parts", world_size, settings, passes=("timed",)))


RUNS = {
    "own_loss": settle(RunPlan("parts", 2, SETTINGS)),
    "whole": _timed(1, WHOLE),
    "summed": _timed(2, {**SETTINGS, "weights": "none"}),
    "larger_rate": _timed(1, {**WHOLE, "learning_rate": 0.1}),
    "adam": _timed(2, ADAM),
    "adam_summed": _timed(2, {**ADAM, "weights": "none"}),
    "unequal": _timed(2, UNEQUAL),
    "unequal_by_rank": _timed(2, {**UNEQUAL, "weights": "by_rank"}),
    "unequal_by_rank_shuffled": _timed(2, {**UNEQUAL, "weights": "by_rank", "order": "shuffled"}),
}


CHOICES = (Choice("faster", "Which step is faster, whole or in parts?", ("whole", "own_loss")),)


def forecast(plan: RunPlan) -> Work:
    """A small classifier: steps are the starting of operations; the peak is the drawing of rows."""
    settings, n = plan.settings, plan.world_size
    features, hidden, classes = (
        whole_number(settings, f"num_{of}") for of in ("features", "hidden", "classes")
    )
    by_rank = settings["rows_by_rank"]
    assert isinstance(by_rank, list)
    is_adam = settings["optimizer"] == "adam"
    alone = stack_work((features, hidden, classes), max(map(int, by_rank)), momentum=not is_adam)
    num_rows = whole_number(settings, "num_rows") + whole_number(settings, "num_validation_rows")
    gradients = Exchange("all_reduce", 4 * alone.optimizer_parameters, 1, n)
    return replace(
        alone,
        peak_bytes=teacher_bytes(num_rows, features, classes),
        # The batch is cut twice, graded, and its gradients are joined, weighed and put back.
        num_operations=alone.num_operations + 32 + (32 if is_adam else 0),
        exchanges=(gradients,) if n > 1 else (),
        num_busy_ranks=n,
    )


def _model(rank: Rank) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The same parameters on every rank, and what updates them."""
    model = perceptron_for(rank)
    optimizer = optimizer_for(rank, model)
    rank.watch(model, optimizer)
    rank.outcome.start_parameter_digest = parameter_digest(model.parameters())
    return model, optimizer


def parts(rank: Rank) -> None:
    """Train on this rank's part of every batch; one device has the whole of it."""
    with rank.phase("build"):
        lesson = scaled_lesson(rank)
        model, optimizer = _model(rank)
    if not rank.is_metered:
        _compare(rank, model, _batch(rank, lesson, 0))
    for epoch in rank.epochs(rank.settings.num_epochs):
        tally = Tally()
        for index in rank.steps(rank.settings.num_batches):
            own = _part(rank, _batch(rank, lesson, index))
            _step(rank, model, optimizer, own, tally)
            rank.count_samples(len(own.labels))
        _report(rank, epoch, tally, model, lesson)


def _batch(rank: Rank, lesson: Lesson, index: int) -> Rows:
    """One batch of all ranks; sorted by label, the classes that come last fall to the last rank."""
    batch = batch_of(lesson.training, index, rank.settings.batch_size)
    if rank.settings.order == "by_label":
        return batch.take(batch.labels.argsort(stable=True))
    return batch


def _part(rank: Rank, batch: Rows) -> Rows:
    """This rank's rows of a batch."""
    sizes = rank.settings.rows_by_rank
    start = sum(sizes[: rank.rank])
    return batch.take(slice(start, start + sizes[rank.rank]))


def _weight(rank: Rank) -> float:
    """What this rank's gradient, that of a mean over its own rows, counts in the sum."""
    sizes = rank.settings.rows_by_rank
    weights: dict[str, float] = {
        "by_rows": sizes[rank.rank] / sum(sizes),
        "by_rank": 1 / len(sizes),
        "none": 1.0,
    }
    return weights[rank.settings.weights]


def _gradients(model: nn.Module) -> list[Tensor]:
    return [p.grad for p in model.parameters() if p.grad is not None]


def _combine(rank: Rank, model: nn.Module) -> Tensor:
    """Add up the ranks' gradients, each times its weight, in place."""
    combined = parameters_to_vector(_gradients(model)) * _weight(rank)
    if rank.world_size > 1:
        dist.all_reduce(combined)
    vector_to_parameters(combined, _gradients(model))
    return combined


def _step(
    rank: Rank, model: nn.Module, optimizer: torch.optim.Optimizer, own: Rows, tally: Tally
) -> None:
    """Forward, loss and backward on this rank's rows; combine; update."""
    with rank.phase("forward"):
        logits = model(own.features)
        loss = nn.functional.cross_entropy(logits, own.labels)
    with rank.phase("backward"):
        loss.backward()
    with rank.phase("combine", computes=False):
        _combine(rank, model)
    with rank.phase("optimizer"):
        optimizer.step()
        optimizer.zero_grad()
    tally.add(loss.item(), logits, own.labels)


def _compare(rank: Rank, model: nn.Module, batch: Rows) -> None:
    """Hold the combined gradient of the first batch against that of the batch as a whole."""
    own = _part(rank, batch)
    nn.functional.cross_entropy(model(own.features), own.labels).backward()
    mine = parameters_to_vector(_gradients(model)).clone()
    with rank.predict("gradient", "add up the ranks' weighted gradients", mine) as out:
        combined = _combine(rank, model).clone()
        out(combined)
    model.zero_grad()
    nn.functional.cross_entropy(model(batch.features), batch.labels).backward()
    whole = parameters_to_vector(_gradients(model))
    facts = {
        "length_ratio": (combined.norm() / whole.norm()).item(),
        "relative_distance": ((combined - whole).norm() / whole.norm()).item(),
        "own_relative_distance": ((mine - whole).norm() / whole.norm()).item(),
    }
    with rank.predict(
        "whole_gradient", "backward on the whole batch, for comparison", batch.features, dict(facts)
    ) as out:
        out(whole)
    model.zero_grad()


def _report(rank: Rank, epoch: int, tally: Tally, model: nn.Module, lesson: Lesson) -> None:
    """Every rank gives the loss over its own rows; rank 0 grades the model and prints."""
    loss, accuracy, count = tally.seen()
    grades = rank.rank == 0 and not rank.is_metered
    graded = validate(model, lesson.validation) if grades else None
    rank.epoch(
        epoch,
        loss=loss,
        accuracy=accuracy,
        num_samples=count,
        validation=graded,
        parameters=model.parameters(),
    )
    if graded is not None:
        print(f"epoch {epoch}: validation loss {graded[1]:.4f}, accuracy {graded[2]:.3f}")


STRATEGIES = {"parts": parts}
