"""A batch that does not fit: what keeps its activations within one device's memory.

A small model and a batch so large that activations fill the memory. The batch goes through one
device whole, is split over two and over four ranks, and goes through one device in microbatches,
whose gradients are added up: each once without a limit, and once under a budget per rank.

    python -m runners run large_batch
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import nn

from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import Choice, Exchange, Work, stack_work
from runners.ranks.rank import Rank
from runners.traces.records import Setting
from runners.training.networks import ResidualLayer, description, num_parameters
from runners.training.steps import validate
from runners.training.teacher import Rows

QUESTION = "What lets a batch train whose activations do not fit one device's memory?"
FULL = True

BYTES_PER_VALUE = 4
BYTES_PER_LABEL = 8
COPIES_PER_PARAMETER = 2  # plain SGD keeps each parameter and its gradient
NUM_BUDGETED_EPOCHS = 3  # a budget refuses in the first or not at all
SETTINGS: dict[str, Setting] = {
    "batch_size": 80000,
    "num_validation_rows": 1000,
    "num_features": 16,
    "width": 64,
    "num_residual_layers": 5,
    "num_classes": 10,
    "num_epochs": 8,  # the batch is all the rows, so an epoch is one step
    "learning_rate": 1.0,
    "num_microbatches": 1,
}


def _widths(settings: Mapping[str, Setting]) -> list[int]:
    hidden = [whole_number(settings, "width")] * (whole_number(settings, "num_residual_layers") + 1)
    return [whole_number(settings, "num_features"), *hidden, whole_number(settings, "num_classes")]


def values_per_row(settings: Mapping[str, Setting]) -> int:
    """Activations of a row, in values, at the peak: where backward goes through the last layer.

    Kept are what the last layer and every residual one were given, and what each ReLU put out;
    beside them lie the gradient of the logits and the gradient of what the last layer was given.
    """
    num_residual = whole_number(settings, "num_residual_layers")
    num_wide = (num_residual + 1) + num_residual + 1
    return num_wide * whole_number(settings, "width") + whole_number(settings, "num_classes")


def settle(plan: RunPlan) -> RunPlan:
    """The same run with what follows from its settings worked out anew; its budget stays.

    Raises:
        ValueError: a count is none, or the batch cannot be cut into equal parts.
    """
    settings = dict(plan.settings)
    batch_size = whole_number(settings, "batch_size")
    num_parts = plan.world_size * whole_number(settings, "num_microbatches")
    if batch_size % num_parts:
        raise ValueError(f"batch_size {batch_size} cannot be cut into {num_parts} equal parts")
    settings |= {
        "bytes_per_value": BYTES_PER_VALUE,
        "copies_per_parameter": COPIES_PER_PARAMETER,
        "num_rows_per_rank": batch_size // plan.world_size,
        "num_rows_at_once": batch_size // num_parts,
        "activation_bytes_per_row": BYTES_PER_VALUE * values_per_row(settings),
        "row_bytes": BYTES_PER_VALUE * whole_number(settings, "num_features") + BYTES_PER_LABEL,
        "model_bytes": BYTES_PER_VALUE * sum(num_parameters(_widths(settings))),
    }
    return replace(plan, settings=settings)


def _budget_bytes(settings: Mapping[str, Setting]) -> int:
    """Halfway between what half of the batch needs and what the whole of it needs."""
    per_row, row, model, size = (
        whole_number(settings, name)
        for name in ("activation_bytes_per_row", "row_bytes", "model_bytes", "batch_size")
    )
    whole = size * (per_row + row) + COPIES_PER_PARAMETER * model
    half = size // 2 * (per_row + row) + COPIES_PER_PARAMETER * model
    return (whole + half) // 2


def _plans() -> dict[str, RunPlan]:
    plans: dict[str, RunPlan] = {}
    free = {
        "single": RunPlan("single", 1, SETTINGS, has_timeline=False),
        "split": RunPlan("split", 2, SETTINGS),
        "split_four": RunPlan("split", 4, SETTINGS),
        "microbatches": RunPlan(
            "microbatches", 1, {**SETTINGS, "num_microbatches": 4}, has_timeline=False
        ),
    }
    for name, plan in free.items():
        plans[name] = settled = settle(plan)
        plans[f"{name}_budget"] = replace(
            settled,
            settings={**settled.settings, "num_epochs": NUM_BUDGETED_EPOCHS},
            budget_bytes=_budget_bytes(settled.settings),
            expected="out_of_memory" if name == "single" else "completed",
            passes=("budgeted",),
        )
    return plans


RUNS = _plans()


CHOICES = (
    Choice(
        "faster",
        "Which step is fastest on the same batch?",
        ("single", "split", "split_four", "microbatches"),
    ),
    Choice(
        "smaller",
        "Which has the lowest peak?",
        ("single", "split", "split_four", "microbatches"),
        by="peak_bytes",
    ),
)


def forecast(plan: RunPlan) -> Work:
    """Residual layers on many rows at once: activations are the memory, and most of the time."""
    settings, n = plan.settings, plan.world_size
    at_once, own, per_row, row, model = (
        whole_number(settings, name)
        for name in (
            "num_rows_at_once",
            "num_rows_per_rank",
            "activation_bytes_per_row",
            "row_bytes",
            "model_bytes",
        )
    )
    widths, num_parts = _widths(settings), whole_number(settings, "num_microbatches")
    part = stack_work(widths, at_once)
    residual = whole_number(settings, "num_residual_layers")
    added = 5 * BYTES_PER_VALUE * at_once * residual * whole_number(settings, "width")
    rows = row * (own + whole_number(settings, "num_validation_rows"))
    gradients = Exchange("all_reduce", model, 2 * (len(widths) - 1), n)
    return replace(
        part,
        # The last microbatch meets the gradients of those before it.
        peak_bytes=per_row * at_once + rows + model * min(num_parts, 2),
        flops=num_parts * part.flops,
        num_products=num_parts * part.num_products,
        moved_bytes=num_parts * (part.moved_bytes + added),
        num_operations=num_parts * (part.num_operations + 2 * residual + 4),
        exchanges=(gradients,) if n > 1 else (),
        num_busy_ranks=n,
    )


def _model(rank: Rank) -> nn.Sequential:
    """The same parameters on every rank: all build from the run's own seed."""
    widths = _widths(vars(rank.settings))
    rank.describe(description(widths, [range(rank.world_size)] * (len(widths) - 1)))
    with rank.phase("build"):
        torch.manual_seed(rank.seed)
        first, *hidden, last = widths
        return nn.Sequential(
            nn.Linear(first, hidden[0], device=rank.device),
            *(ResidualLayer(width, rank.device) for width in hidden[1:]),
            nn.Linear(hidden[-1], last, device=rank.device),
        )


def _drawn(rank: Rank, num_rows: int, seed: int) -> Rows:
    """Rows whose label says which of their first features is the largest.

    Drawn cheaply: the teacher of the other experiments would need more memory than a quarter of
    the activations.
    """
    source = torch.Generator().manual_seed(seed)
    features = 2 * torch.rand(num_rows, rank.settings.num_features, generator=source) - 1
    return Rows(features, features[:, : rank.settings.num_classes].argmax(1))


def _on_device(rank: Rank, rows: Rows) -> Rows:
    """A copy of rows on this rank's device, so that the rows they are part of can be let go."""
    features, labels = rows.features.clone().to(rank.device), rows.labels.clone().to(rank.device)
    rank.rows(features, labels)
    return Rows(features, labels)


def _rows(rank: Rank) -> tuple[Rows, Rows]:
    """This rank's part of the batch, and rows that are never trained on."""
    settings = rank.settings
    size = settings.num_rows_per_rank
    with rank.phase("rows"):
        whole = _drawn(rank, settings.batch_size, rank.seed)
        own = _on_device(rank, whole.take(slice(rank.rank * size, (rank.rank + 1) * size)))
        return own, _on_device(rank, _drawn(rank, settings.num_validation_rows, rank.seed + 1))


def _microbatches(rank: Rank, rows: Rows) -> Iterator[Rows]:
    """This rank's rows, as many at once as the run says."""
    size = rank.settings.num_rows_at_once
    for start in range(0, len(rows.labels), size):
        yield rows.take(slice(start, start + size))


def train(rank: Rank) -> None:
    """Train on one batch: its parts side by side on the ranks, and one after another on a rank.

    Each part's mean loss is weighted by its share of the batch, so that the gradients of all parts
    add up to the gradient of the mean loss over the whole batch.
    """
    settings = rank.settings
    model = _model(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    rank.watch(model, optimizer)
    training, validation = _rows(rank)
    for epoch in rank.epochs(settings.num_epochs):
        for _ in rank.steps(1):
            loss = _accumulate(rank, model, training)
            if rank.world_size > 1:
                with rank.phase("all_reduce", computes=False):
                    for parameter in model.parameters():
                        dist.all_reduce(parameter.grad)
            with rank.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            rank.count_samples(len(training.labels))
            rank.step_loss(loss)
        graded = None
        if rank.rank == 0 and epoch == settings.num_epochs and not rank.is_metered:
            with rank.phase("validation"):
                graded = validate(model, validation)
        rank.epoch(
            epoch,
            loss=loss,
            num_samples=len(training.labels),
            validation=graded,
            parameters=model.parameters(),
        )
        print(f"epoch {epoch}: loss {loss:.4f} on rank {rank.rank}")


def _accumulate(rank: Rank, model: nn.Module, rows: Rows) -> float:
    """Add up this rank's gradients, one microbatch after another.

    Returns:
        The mean loss over this rank's rows.
    """
    losses = []
    for part in _microbatches(rank, rows):
        share = len(part.labels) / rank.settings.batch_size
        with rank.phase("forward"):
            loss = nn.functional.cross_entropy(model(part.features), part.labels)
        with rank.phase("backward"):
            (loss * share).backward()
        losses.append(loss.item() * len(part.labels))
        del loss  # and with it the last of this part's activations
    return sum(losses) / len(rows.labels)


STRATEGIES = {"single": train, "split": train, "microbatches": train}
