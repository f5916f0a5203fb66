"""What the runs of `large_batch` will need. No torch."""

from __future__ import annotations

from dataclasses import replace

from runners.experiments.large_batch import BYTES_PER_VALUE, FREE, Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Communication, Work, stack_work

CHOICES = (
    Choice("faster", "Which step is fastest on the same batch?", tuple(FREE)),
    Choice("smaller", "Which has the lowest peak?", tuple(FREE), by="peak_bytes"),
)


def forecast(plan: RunPlan[Settings]) -> Work:
    """Residual layers on many samples at once: activations are the memory, and most of the time."""
    settings, n = plan.settings, plan.world_size
    at_once, num_parts = settings.num_samples_at_once, settings.num_microbatches
    part = stack_work(settings.widths, at_once)
    residual = settings.num_residual_layers
    added = 5 * BYTES_PER_VALUE * at_once * residual * settings.width
    samples = settings.sample_bytes * (
        settings.num_samples_per_rank + settings.num_validation_samples
    )
    gradients = Communication("all_reduce", settings.model_bytes, 2 * (len(settings.widths) - 1), n)
    return replace(
        part,
        # The last microbatch meets the gradients of those before it.
        peak_bytes=settings.activation_bytes_per_sample * at_once
        + samples
        + settings.model_bytes * min(num_parts, 2),
        flops=num_parts * part.flops,
        num_products=num_parts * part.num_products,
        moved_bytes=num_parts * (part.moved_bytes + added),
        num_operations=num_parts * (part.num_operations + 2 * residual + 4),
        communication=(gradients,) if n > 1 else (),
        num_busy_ranks=n,
    )
