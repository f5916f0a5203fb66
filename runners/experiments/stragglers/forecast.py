"""What the runs of `stragglers` will need. No torch."""

from __future__ import annotations

from dataclasses import replace

from runners.experiments.stragglers import Joined, Paced
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Communication, Work, stack_work

CHOICES = (
    Choice(
        "shortest",
        "Whose typical step is the shortest, with ranks that are slow now and then?",
        ("sometimes", "sometimes_local"),
    ),
)


def forecast(plan: RunPlan[Paced | Joined]) -> Work:
    """A paced step takes what was set, and a little model beside it."""
    settings, n = plan.settings, plan.world_size
    widths = (settings.num_features, settings.num_hidden, settings.num_classes)
    is_joined = isinstance(settings, Joined)
    samples = settings.batch_size if isinstance(settings, Joined) else settings.num_samples
    alone = stack_work(widths, samples)
    value_bytes = 8 if settings.dtype == "float64" else 4
    gradients = Communication("all_reduce", value_bytes * alone.optimizer_parameters, 1, n)
    # Which ranks have joined is asked in every step, beside the gradients.
    asked = (Communication("all_reduce", 4, 2, n),) if is_joined else ()
    return replace(
        alone,
        num_operations=alone.num_operations + 9,
        communication=() if plan.strategy == "local" else (gradients, *asked),
        num_busy_ranks=n if is_joined else 1,  # asleep, ranks share no core
        extra_seconds=_typical_seconds(plan),
    )


def _typical_seconds(plan: RunPlan[Paced | Joined]) -> float:
    """The median over steps of what rank 0 should take: its own work, or that of the slowest."""
    if isinstance(plan.settings, Joined):
        return 0.0
    own: list[list[float]] = plan.settings.lengths()
    slowest = [max(of_step) for of_step in zip(*own, strict=True)]
    each: list[float] = own[0] if plan.strategy == "local" else slowest
    return sorted(each)[len(each) // 2]
