"""What the runs of `batch_and_rate` will need. No torch."""

from __future__ import annotations

from dataclasses import replace

from runners.experiments.batch_and_rate import Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Communication, Work, stack_work

CHOICES = (
    Choice(
        "shortest",
        "Does an update of one rank or of four take the shorter time?",
        ("one", "fixed"),
    ),
)


def forecast(plan: RunPlan[Settings]) -> Work:
    """The work of one update: a small classifier, its gradients averaged."""
    settings, n = plan.settings, plan.world_size
    widths = (settings.num_features, settings.num_hidden, settings.num_classes)
    alone = stack_work(widths, settings.batch_size, momentum=bool(settings.momentum))
    value_bytes = 8 if settings.dtype == "float64" else 4
    gradients = Communication("all_reduce", value_bytes * alone.optimizer_parameters, 1, n)
    return replace(
        alone,
        num_operations=alone.num_operations + 9,  # the batch is cut out, and its samples are graded
        communication=(gradients,) if n > 1 else (),
        num_busy_ranks=n,
    )
