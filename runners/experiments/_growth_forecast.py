"""What each run of `growth` should need, by closed forms from its settings."""

from __future__ import annotations

from dataclasses import replace

from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import FLOAT_BYTES, Choice, Exchange, Work, stack_work

CHOICES = (
    Choice(
        "least_memory",
        "Over four ranks, under which strategy does the fullest rank hold least?",
        ("ddp_ranks_4", "fsdp_ranks_4", "stages_ranks_4", "split_ranks_4"),
        by="peak_bytes",
    ),
    Choice(
        "batch_2000",
        "Is a step on the largest batch faster on one device, or split over two ranks?",
        ("single_batch_2000", "split_batch_2000"),
    ),
    Choice(
        "batch_250",
        "Is a step on the smallest batch faster on one device, or split over two ranks?",
        ("single_batch_250", "split_batch_250"),
    ),
)


def forecast(plan: RunPlan) -> Work:
    """One step of the busiest rank, by closed forms."""
    settings, n = plan.settings, plan.world_size
    width, num_layers = whole_number(settings, "width"), whole_number(settings, "num_layers")
    layers, rows = (whole_number(settings, f"num_{of}_per_rank") for of in ("layers", "rows"))
    model, activation = (whole_number(settings, f"{of}_bytes") for of in ("model", "activation"))
    alone = replace(
        stack_work([width] * (layers + 1), rows),
        peak_bytes=_foretell_peak(plan, model, activation),
        num_busy_ranks=n,
    )
    if plan.strategy == "stages":
        messages = 2 * (n - 1)
        passing = (Exchange("send", messages * activation // n, -(-messages // n)),)
        return replace(alone, num_busy_ranks=1, num_sequential=float(n), exchanges=passing)
    extra = {"single": (0.0, 0), "ddp": (6.0, 6), "fsdp": (9.0, 60), "split": (0.0, 0)}
    moved, operations = extra[plan.strategy]
    return replace(
        alone,
        moved_bytes=alone.moved_bytes + moved * model,
        num_operations=alone.num_operations + operations * num_layers,
        optimizer_parameters=model // FLOAT_BYTES // (n if plan.strategy == "fsdp" else 1),
        exchanges=_foretell_exchanges(plan, model, activation),
    )


def _foretell_peak(plan: RunPlan, model: int, activation: int) -> int:
    """The higher of two moments: backward begins, with all activations, or ends, with gradients."""
    settings, n = plan.settings, plan.world_size
    num_layers = whole_number(settings, "num_layers")
    copies = whole_number(settings, "copies_per_parameter")
    rows = activation + 8 * whole_number(settings, "batch_size")
    layer = model // num_layers
    if plan.strategy == "fsdp":  # beside the shards four layers: gathered, gradient, two in flight
        return (2 * model - layer) // n + 4 * layer + activation + rows
    if plan.strategy == "stages":
        return copies * model // n + (5 if n > 2 else 4) * activation + rows
    if plan.strategy == "split":
        begins = model + activation * (num_layers + 1) // n + 5 * activation
        return max(copies * model + activation + 4 * activation // n, begins) + rows
    wrapped = model if plan.strategy == "ddp" else 0
    begins = model + (num_layers + 2) * activation
    return wrapped + max(copies * model + activation, begins) + rows


def _foretell_exchanges(plan: RunPlan, model: int, activation: int) -> tuple[Exchange, ...]:
    n, num_layers = plan.world_size, whole_number(plan.settings, "num_layers")
    return {
        "single": (),
        "ddp": (Exchange("all_reduce", model, 2, n),),
        "fsdp": (
            Exchange("all_gather", 2 * model, 2 * num_layers, n),
            Exchange("reduce_scatter", model, num_layers, n),
        ),
        "split": (
            Exchange("scatter", 2 * activation, 2, n),
            Exchange("gather", activation, 1, n),
            Exchange("all_reduce", model, 2 * num_layers, n),
        ),
    }[plan.strategy]
