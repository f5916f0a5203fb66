"""What the runs of `speedup` will need. No torch."""

from __future__ import annotations

from dataclasses import replace

from runners.experiments.speedup import BATCH_SIZES, Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Communication, Work, stack_work

CHOICES = tuple(
    Choice(
        f"samples_{samples}",
        f"Is a step on {samples} samples faster on one device, or under DDP over two ranks?",
        (f"one_{samples}", f"two_{samples}"),
    )
    for samples in BATCH_SIZES
)


def forecast(plan: RunPlan[Settings]) -> Work:
    """A stack of equal layers on this rank's share of the batch; under DDP, its gradients."""
    num_layers = plan.settings.num_layers
    alone = stack_work(plan.settings.widths, plan.settings.batch_size)
    if plan.strategy == "single":
        return alone
    model_bytes = 4 * alone.optimizer_parameters
    return replace(
        alone,
        moved_bytes=alone.moved_bytes + 6 * model_bytes,  # into the buckets, divided, and back
        num_operations=alone.num_operations + 6 * num_layers,
        communication=(Communication("all_reduce", model_bytes, 2, plan.world_size),),
        num_busy_ranks=plan.world_size,
    )
