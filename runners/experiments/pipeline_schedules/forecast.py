"""What the runs of `pipeline_schedules` will need. No torch."""

from __future__ import annotations

from runners.experiments.pipeline_schedules import Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Work

CHOICES = (
    Choice(
        "same_work",
        "Which schedule ends a step of the same work first?",
        ("paced_gpipe", "paced_1f1b", "paced_interleaved_short", "paced_zero_bubble_short"),
    ),
    Choice(
        "activations",
        "Under which schedule does the busiest rank need the least memory?",
        ("real_gpipe", "real_1f1b"),
        by="peak_bytes",
    ),
)


def forecast(plan: RunPlan[Settings]) -> Work:
    """A paced step by the schedule's formula; a real one by what the busiest rank keeps."""
    settings = plan.settings
    parts, chunks = settings.num_microbatches, settings.num_chunks
    if plan.nature != "paced":
        return Work(peak_bytes=_peak(plan))
    forward = settings.forward_seconds / chunks
    both = forward * (1 + settings.backward_ratio)
    # A rank that waits at the ends can use that time for the gradients of its parameters.
    waits = forward if plan.strategy.startswith("zero_bubble") else both
    seconds = parts * chunks * both * settings.slow_ratio + (plan.world_size - 1) * waits
    return Work(num_operations=40 * parts * chunks, extra_seconds=seconds)


def _peak(plan: RunPlan[Settings]) -> int | None:
    """Of the rank that needs most; None where what was sent is kept until the step ends."""
    settings, parts = plan.settings, plan.settings.num_microbatches
    tensor, kept, layer = settings.activation_bytes, settings.kept_bytes, settings.layer_bytes
    samples = parts * tensor
    parameters = settings.num_layers_per_stage * layer
    if plan.strategy == "single":
        return parts * kept + tensor * parts + 2 * samples + parameters + layer
    if plan.strategy == "gpipe":
        # The last rank holds targets too, and the gradient of the loss.
        return parts * kept + samples + 2 * tensor + samples + parameters + layer
    if plan.strategy == "one_f_one_b":
        held = min(parts, plan.world_size)
        return held * kept + samples + 2 * tensor + layer + samples + 2 * parameters
    return None
