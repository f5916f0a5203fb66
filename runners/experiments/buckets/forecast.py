"""What the runs of `buckets` will need. No torch."""

from __future__ import annotations

from dataclasses import replace

from runners.experiments.buckets import BYTES_PER_VALUE, Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Communication, Work, stack_work

CHOICES = (
    Choice(
        "overlap",
        "Is a step faster whose gradients leave during backward, or after it?",
        ("as_it_comes", "after_backward"),
    ),
    Choice(
        "bucket",
        "Is a step faster with buckets as DDP has them, or with small ones?",
        ("as_it_comes", "small"),
    ),
)


def forecast(plan: RunPlan[Settings]) -> Work:
    """A stack of equal layers, its gradients in buckets, or in one message after backward."""
    settings = plan.settings
    num_layers, samples, overlaps = settings.num_layers, settings.batch_size, settings.overlaps
    model = num_layers * settings.layer_bytes
    activation = BYTES_PER_VALUE * samples * settings.width
    cap = settings.bucket_cap_mib
    whole_buckets = -(-model // (cap << 20)) if cap else 2
    alone = stack_work(settings.widths, samples)
    peak = 3 * model + activation if overlaps else 4 * model
    return replace(
        alone,
        peak_bytes=peak + activation + 8 * samples,
        moved_bytes=alone.moved_bytes + (6 if overlaps else 8) * model,
        num_operations=alone.num_operations + 6 * num_layers,
        communication=(
            Communication("all_reduce", model, whole_buckets if overlaps else 1, plan.world_size),
        ),
        num_busy_ranks=plan.world_size,
    )
