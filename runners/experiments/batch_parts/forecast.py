"""What the runs of `batch_parts` will need. No torch."""

from __future__ import annotations

from dataclasses import replace

from runners.experiments.batch_parts import Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Communication, Work, stack_work, teacher_bytes

CHOICES = (Choice("faster", "Which step is faster, whole or in parts?", ("whole", "own_loss")),)


def forecast(plan: RunPlan[Settings]) -> Work:
    """A small classifier: steps are launching operations; the peak is the drawing of samples."""
    settings, n = plan.settings, plan.world_size
    features, classes = settings.num_features, settings.num_classes
    is_adam = settings.optimizer == "adam"
    widths = (features, settings.num_hidden, classes)
    alone = stack_work(widths, max(settings.samples_by_rank), momentum=not is_adam)
    num_samples = settings.num_samples + settings.num_validation_samples
    gradients = Communication("all_reduce", 4 * alone.optimizer_parameters, 1, n)
    return replace(
        alone,
        peak_bytes=teacher_bytes(num_samples, features, classes),
        # The batch is cut twice, graded, and its gradients are joined, weighed and put back.
        num_operations=alone.num_operations + 32 + (32 if is_adam else 0),
        communication=(gradients,) if n > 1 else (),
        num_busy_ranks=n,
    )
