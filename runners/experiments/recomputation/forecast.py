"""What the runs of `recomputation` will need. No torch."""

from __future__ import annotations

from dataclasses import replace

from runners.experiments.recomputation import BYTES_PER_VALUE, Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Work, stack_work

CHOICES = (
    Choice("faster", "Which step is faster?", ("kept", "recomputed")),
    Choice("smaller", "Which has the lower peak?", ("kept", "recomputed"), by="peak_bytes"),
)


def forecast(plan: RunPlan[Settings]) -> Work:
    """A stack of equal layers; with segments, their forward pass but for the last one's, again."""
    settings = plan.settings
    num_layers, segments, samples = settings.num_layers, settings.num_segments, settings.batch_size
    activation = settings.activation_bytes
    once = stack_work([settings.width] * (num_layers + 1), samples)
    again = (segments - 1) / segments  # of the layers
    held = num_layers + 2 if segments == 1 else num_layers // segments + segments + 2
    return replace(
        once,
        peak_bytes=held * activation
        + activation
        + 8 * samples
        + BYTES_PER_VALUE * once.optimizer_parameters,
        flops=once.flops + again * 2.0 * samples * settings.width**2 * num_layers,
        num_products=once.num_products + round(again * num_layers),
        moved_bytes=once.moved_bytes + again * 3 * activation * num_layers,
        num_operations=once.num_operations + round(again * 12 * num_layers),
    )
