"""What the runs of `large_model` will need. No torch."""

from __future__ import annotations

from dataclasses import replace

from runners.experiments.large_model import BYTES_PER_VALUE, Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Work, stack_work

CHOICES = (
    Choice(
        "wide",
        "Under which strategy does the fullest rank hold least of the wide model?",
        ("wide_single", "wide_ddp", "wide_fsdp", "wide_stages", "wide_tensor_parallel"),
        by="peak_bytes",
    ),
    Choice(
        "deep",
        "Under which strategy does the fullest rank hold least of the deep model?",
        ("deep_single", "deep_ddp", "deep_fsdp", "deep_stages"),
        by="peak_bytes",
    ),
)


def forecast(plan: RunPlan[Settings]) -> Work:
    """The peak of the fullest rank; these runs are metered alone, so no step is forecast."""
    return replace(
        stack_work(plan.settings.widths, plan.settings.batch_size),
        peak_bytes=_peak_bytes(plan),
        num_busy_ranks=plan.world_size,
    )


def _peak_bytes(plan: RunPlan[Settings]) -> int:
    """What training keeps of parameters, what a wrapper adds, samples and two activations."""
    settings, n = plan.settings, plan.world_size
    copies, model = settings.copies_per_parameter, settings.model_bytes
    layer, widths = settings.largest_layer_bytes, settings.widths
    samples = settings.num_samples * (BYTES_PER_VALUE * widths[0] + 8)
    passing = 2 * BYTES_PER_VALUE * settings.batch_size * max(widths[1:])
    held = {
        "single": copies * model,
        "ddp": (copies + 1) * model,
        "ddp_view": copies * model + layer,
        "stages": copies * settings.largest_stage_bytes,
        # The loop of an unfused Adam holds two more of the parameter that it updates.
        "tensor_parallel": (copies * model + (2 * layer if copies > 2 else 0)) // n,
        "fsdp": _sharded_bytes(copies, model, layer, n),
    }[plan.strategy]
    return held + samples + passing


def _sharded_bytes(copies: int, model: int, layer: int, n: int) -> int:
    """FSDP's peak: at the largest layer's backward, or where equal layers follow on each other.

    There the layer is gathered, has its gradient, and the gradient is copied to be scattered; here
    the next is gathered beside it and the one before is still being scattered.
    """
    shards = copies * model // n
    at_largest = shards + 2 * layer
    in_between = shards - 2 * layer // n + 4 * layer
    return in_between if layer * 3 < model else at_largest
