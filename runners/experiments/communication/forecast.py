"""What the runs of `communication` will need. No torch."""

from __future__ import annotations

from runners.experiments.communication import Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Communication, Work

CHOICES = (
    Choice(
        "ranks",
        "Over how many ranks is an all_reduce of the largest payload fastest?",
        ("ranks_2", "ranks_3", "ranks_4"),
    ),
)


def forecast(plan: RunPlan[Settings]) -> Work | None:
    """One step is one all_reduce of the largest payload; where bytes are counted, there is none."""
    if plan.strategy != "timed":
        return None
    reduced = Communication("all_reduce", plan.settings.largest_bytes, num_ranks=plan.world_size)
    # Besides it nothing is computed: zeros are added.
    return Work(num_operations=1, communication=(reduced,), num_busy_ranks=plan.world_size)
