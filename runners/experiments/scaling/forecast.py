"""What the runs of `scaling` will need. No torch."""

from __future__ import annotations

from dataclasses import replace

from runners.experiments.scaling import LinkedSettings, ReplicaSettings, Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Communication, Work, stack_work

CHOICES = (
    Choice(
        "ranks",
        "Over how many ranks is a step on the same batch shortest?",
        ("one", "strong_2", "strong_4"),
    ),
    Choice(
        "link",
        "Is a second rank worth its while over a slow link?",
        ("one", "link_slow"),
    ),
)


def forecast(plan: RunPlan[Settings]) -> Work | None:
    """A rank's samples, the update of all parameters, and one all-reduce of them."""
    settings = plan.settings
    alone = stack_work(settings.widths, settings.batch_size)
    if not isinstance(settings, ReplicaSettings):
        return alone
    gradients = settings.gradient_bytes
    transfer = settings.transfer_seconds if isinstance(settings, LinkedSettings) else 0.0
    return replace(
        alone,
        moved_bytes=alone.moved_bytes + 6 * gradients,  # into the bucket, divided, and back
        num_operations=alone.num_operations + 6 * len(settings.widths),
        communication=()
        if transfer
        else (Communication("all_reduce", gradients, 2, plan.world_size),),
        num_busy_ranks=plan.world_size,
        extra_seconds=transfer * 1514 / 1448,  # a full frame, and its payload
    )
