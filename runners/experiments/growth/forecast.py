"""What the runs of `growth` will need. No torch."""

from __future__ import annotations

from dataclasses import replace

from runners.experiments.growth import Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import FLOAT_BYTES, Choice, Communication, Work, stack_work

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


def forecast(plan: RunPlan[Settings]) -> Work:
    """One step of the busiest rank, by closed forms."""
    settings, n = plan.settings, plan.world_size
    model, activation = settings.model_bytes, settings.activation_bytes
    widths = [settings.width] * (settings.num_layers_per_rank + 1)
    whole = stack_work(widths, settings.num_samples_per_rank)
    alone = replace(whole, peak_bytes=_peak_bytes(plan), num_busy_ranks=n)
    if plan.strategy == "stages":
        messages = 2 * (n - 1)
        passing = (Communication("send", messages * activation // n, -(-messages // n)),)
        return replace(alone, num_busy_ranks=1, num_sequential=float(n), communication=passing)
    extra = {"single": (0.0, 0), "ddp": (6.0, 6), "fsdp": (9.0, 60), "split": (0.0, 0)}
    moved, operations = extra[plan.strategy]
    return replace(
        alone,
        moved_bytes=alone.moved_bytes + moved * model,
        num_operations=alone.num_operations + operations * settings.num_layers,
        optimizer_parameters=model // FLOAT_BYTES // (n if plan.strategy == "fsdp" else 1),
        communication=_communication(plan),
    )


def _peak_bytes(plan: RunPlan[Settings]) -> int:
    """The higher of two moments: backward begins, with all activations, or ends, with gradients."""
    settings, n = plan.settings, plan.world_size
    model, activation = settings.model_bytes, settings.activation_bytes
    num_layers, copies = settings.num_layers, settings.copies_per_parameter * model
    samples = activation + 8 * settings.batch_size
    layer = model // num_layers
    if plan.strategy == "fsdp":  # beside the shards four layers: gathered, gradient, two in flight
        return (2 * model - layer) // n + 4 * layer + activation + samples
    if plan.strategy == "stages":
        return copies // n + (5 if n > 2 else 4) * activation + samples
    if plan.strategy == "split":
        begins = model + activation * (num_layers + 1) // n + 5 * activation
        return max(copies + activation + 4 * activation // n, begins) + samples
    wrapped = model if plan.strategy == "ddp" else 0
    begins = model + (num_layers + 2) * activation
    return wrapped + max(copies + activation, begins) + samples


def _communication(plan: RunPlan[Settings]) -> tuple[Communication, ...]:
    settings, n = plan.settings, plan.world_size
    model, activation = settings.model_bytes, settings.activation_bytes
    return {
        "single": (),
        "ddp": (Communication("all_reduce", model, 2, n),),
        "fsdp": (
            Communication("all_gather", 2 * model, 2 * settings.num_layers, n),
            Communication("reduce_scatter", model, settings.num_layers, n),
        ),
        "split": (
            Communication("scatter", 2 * activation, 2, n),
            Communication("gather", activation, 1, n),
            Communication("all_reduce", model, 2 * settings.num_layers, n),
        ),
    }[plan.strategy]
