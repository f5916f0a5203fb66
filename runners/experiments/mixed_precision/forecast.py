"""What the runs of `mixed_precision` will need. No torch."""

from __future__ import annotations

from dataclasses import replace

from runners.experiments.mixed_precision import (
    FULL_BYTES,
    NARROW_BYTES,
    Autocast,
    Narrow,
    Settings,
)
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Work, stack_work

LABEL_BYTES = 8
CHOICES = (
    Choice(
        "smallest",
        "Which has the lowest peak: fp32, autocast to bf16, or bf16 all the way?",
        ("fp32", "bf16", "master", "pure"),
        by="peak_bytes",
    ),
)


def forecast(plan: RunPlan[Settings]) -> Work:
    """One step: the state of all parameters, and the worst of backward and of the update."""
    settings = plan.settings
    samples, layers = settings.batch_size, settings.num_layers
    peak = samples * LABEL_BYTES + _peak_bytes(settings)
    if plan.strategy != "plain":
        return Work(peak_bytes=peak)  # no primitive knows the rate of narrow products
    return replace(
        stack_work((settings.width,) * (layers + 1), samples),
        peak_bytes=peak,
        num_operations=34 * layers + 5,
        optimizer="adam",
    )


def _peak_bytes(settings: Settings) -> int:
    one, layers, count = settings.activation_bytes, settings.num_layers, settings.num_parameters
    half, weight_bytes = one // 2, FULL_BYTES * settings.width**2
    temporaries = 2 * weight_bytes  # Adam's own two intermediate results
    if isinstance(settings, Narrow):
        updated = NARROW_BYTES * count + temporaries
        updated -= 0 if settings.keeps_master else weight_bytes
        state = count * (14 if settings.keeps_master else 6)
        return half + state + max((layers - 1) * half + 3 * one, updated)
    backward = (layers + 2) * one
    if isinstance(settings, Autocast):
        backward = layers * half + 3 * one + settings.copies_bytes
    return one + 12 * count + max(backward, FULL_BYTES * count + temporaries)
