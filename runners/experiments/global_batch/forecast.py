"""What the runs of `global_batch` will need. No torch."""

from __future__ import annotations

from dataclasses import replace

from runners.experiments.global_batch import Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Communication, Work, stack_work, teacher_bytes

CHOICES = (
    Choice(
        "no_sync",
        "Which update is faster: with one all-reduce after the last part, or after each?",
        ("accumulated", "reduced_each"),
    ),
)


def forecast(plan: RunPlan[Settings]) -> Work:
    """A small classifier, forward and backward once for each part, updated once."""
    settings, n, num_parts = plan.settings, plan.world_size, plan.settings.num_parts
    widths = (settings.num_features, settings.num_hidden, settings.num_classes)
    part = stack_work(widths, settings.batch_size // num_parts, momentum=True)
    num_samples = settings.num_samples + settings.num_validation_samples
    model = (8 if settings.dtype == "float64" else 4) * part.optimizer_parameters
    times = num_parts if settings.reduces_each_part else 1
    return replace(
        part,
        peak_bytes=teacher_bytes(num_samples, widths[0], widths[-1]),
        flops=num_parts * part.flops,
        num_products=num_parts * part.num_products,
        moved_bytes=num_parts * part.moved_bytes,
        num_operations=12 + num_parts * (part.num_operations + 9),
        communication=(Communication("all_reduce", times * model, times, n),),
        num_busy_ranks=n,
    )
