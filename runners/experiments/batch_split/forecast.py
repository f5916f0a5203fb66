"""What the runs of `batch_split` will need. No torch."""

from __future__ import annotations

from dataclasses import replace

from runners.experiments.batch_split import Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Communication, Work, stack_work, teacher_bytes

CHOICES = (Choice("faster", "Which step is faster, whole or split?", ("single", "split")),)


def forecast(plan: RunPlan[Settings]) -> Work:
    """A small classifier: steps are launching operations; the peak is the drawing of samples."""
    settings, n = plan.settings, plan.world_size
    features, classes, batch = settings.num_features, settings.num_classes, settings.batch_size
    widths = (features, settings.num_hidden, classes)
    alone = stack_work(widths, settings.num_samples_per_rank, momentum=True)
    num_samples = settings.num_samples + settings.num_validation_samples
    work = replace(
        alone,
        peak_bytes=teacher_bytes(num_samples, features, classes),
        num_operations=alone.num_operations + 9,  # the batch is cut out, and its samples are graded
    )
    if plan.strategy == "single":
        return work
    return replace(
        work,
        num_operations=work.num_operations + 45,  # gathered, joined, cut, put back
        communication=(
            Communication("scatter", 4 * batch * features, 1, n),
            Communication("gather", 4 * batch * classes, 1, n),
            Communication("scatter", 4 * batch * classes, 1, n),
            Communication("all_reduce", 4 * alone.optimizer_parameters, 1, n),
        ),
        num_busy_ranks=n,
    )
