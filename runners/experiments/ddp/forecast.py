"""What the runs of `ddp` will need. No torch."""

from __future__ import annotations

from dataclasses import replace

from runners.experiments.ddp import Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Communication, Work, stack_work, teacher_bytes

CHOICES = (
    Choice(
        "faster",
        "Is a step on the same global batch faster on one device, or under DDP over four ranks?",
        ("single", "ddp"),
    ),
    Choice("ranks", "Is a step faster over two ranks, or over four?", ("ddp_two_ranks", "ddp")),
)


def forecast(plan: RunPlan[Settings]) -> Work:
    """A small classifier: steps are launching operations; the peak is the drawing of samples."""
    settings = plan.settings
    widths = (settings.num_features, settings.num_hidden, settings.num_classes)
    alone = stack_work(widths, settings.batch_size, momentum=True)
    num_samples = settings.num_samples + settings.num_validation_samples
    model_bytes = (8 if settings.dtype == "float64" else 4) * alone.optimizer_parameters
    averaged = Communication("all_reduce", model_bytes, 1, plan.world_size)
    return replace(
        alone,
        peak_bytes=teacher_bytes(num_samples, settings.num_features, settings.num_classes),
        num_operations=alone.num_operations + 9,  # the batch is cut out, and its samples are graded
        communication=(averaged,) if plan.strategy == "ddp" else (),
        num_busy_ranks=plan.world_size,
    )
