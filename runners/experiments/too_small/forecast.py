"""What the runs of `too_small` will need. No torch."""

from __future__ import annotations

from runners.experiments.too_small import Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Work

BYTES_PER_VALUE = 4
LABEL_BYTES = 8


def forecast(plan: RunPlan[Settings]) -> Work:
    """The peak of the largest model under DDP; what is timed here are turns and no steps."""
    settings = plan.settings
    layers, samples = settings.num_layers, settings.batch_size
    model = BYTES_PER_VALUE * settings.num_parameters[-1]
    one, layer = BYTES_PER_VALUE * samples * settings.widths[-1], model // layers
    worst = max((layers + 2) * one, 3 * one + (layers - 1) * layer, model + one)
    return Work(peak_bytes=2 * model + one + samples * LABEL_BYTES + worst)
