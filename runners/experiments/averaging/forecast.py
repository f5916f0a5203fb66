"""What the runs of `averaging` will need. No torch."""

from __future__ import annotations

from dataclasses import replace

from runners.experiments.averaging import Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Communication, Work, stack_work

CHOICES = (
    Choice(
        "seldom",
        "Which median step is faster: with an average in each, or in every tenth?",
        ("each_step", "ten_steps"),
    ),
)


def forecast(plan: RunPlan[Settings]) -> Work:
    """A small classifier; the median step communicates only where every step does."""
    settings, n = plan.settings, plan.world_size
    widths = (settings.num_features, settings.num_hidden, settings.num_classes)
    is_adam = settings.optimizer == "adam"
    alone = stack_work(widths, settings.batch_size, momentum=not is_adam)
    value_bytes = 8 if settings.dtype == "float64" else 4
    parameters = Communication("all_reduce", value_bytes * alone.optimizer_parameters, 1, n)
    often = settings.averages == "gradients" or settings.steps_between == 1
    return replace(
        alone,
        num_operations=alone.num_operations + 9 + (32 if is_adam else 0) + (12 if often else 0),
        communication=(parameters,) if often else (),
        num_busy_ranks=n,
    )
