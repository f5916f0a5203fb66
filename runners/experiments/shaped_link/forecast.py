"""What the runs of `shaped_link` will need. No torch."""

from __future__ import annotations

from dataclasses import replace

from runners.experiments.shaped_link import WHOLE_MODEL, DdpSettings, Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Work, stack_work

CHOICES = (
    Choice(
        "overlap",
        "Over the same slow link, which way to reduce gradients makes the shortest step?",
        ("mbit_400", "one_bucket", "after_backward"),
    ),
    Choice(
        "accumulation",
        "Over the same link, how often should gradients of four parts of a batch be reduced?",
        ("accumulated", "reduced_each"),
    ),
)


def forecast(plan: RunPlan[Settings]) -> Work | None:
    """What is computed, and on top of it as much of the transfer as cannot hide in backward."""
    settings = plan.settings
    if settings.transfer_seconds is None:
        return None
    transfer = settings.transfer_seconds * (1514 / 1448)  # a full frame, and its payload
    computing, hidden = _computing(plan), _hidden_flops(settings)
    last_share = 1 / settings.num_layers
    # Which of the two passes first differs by machine; that a core makes tens of billions of
    # operations a second decides it wherever the two are not alike.
    if hidden / 5e10 > transfer * (1 - last_share):
        return replace(computing, extra_seconds=transfer * last_share)
    return replace(computing, flops=computing.flops - hidden, extra_seconds=transfer)


def _computing(plan: RunPlan[Settings]) -> Work:
    """All microbatches of a step, and one update; gradients go into buckets and back."""
    settings, parts = plan.settings, plan.settings.num_microbatches
    one = stack_work([settings.width] * (settings.num_layers + 1), settings.batch_size)
    return replace(
        one,
        flops=one.flops * parts,
        num_products=one.num_products * parts,
        moved_bytes=one.moved_bytes * parts + 6 * settings.gradient_bytes,
        num_operations=one.num_operations * parts,
        num_busy_ranks=plan.world_size,
    )


def _hidden_flops(settings: Settings) -> float:
    """What backward still computes once the last layer's gradients are on their way."""
    if not isinstance(settings, DdpSettings) or settings.bucket_bytes == WHOLE_MODEL:
        return 0.0
    num_products = 2 * (settings.num_layers - 1) - 1
    return 2.0 * settings.batch_size * settings.width**2 * num_products * settings.num_reductions
