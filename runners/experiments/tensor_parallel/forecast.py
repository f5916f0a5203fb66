"""What the runs of `tensor_parallel` will need. No torch."""

from __future__ import annotations

from runners.experiments.tensor_parallel import BYTES_PER_VALUE, Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Communication, Work, transformer_values

CHOICES = (
    Choice(
        "least_memory",
        "Over how many ranks does a rank's peak come out lowest?",
        ("ranks_1", "ranks_2", "ranks_4"),
        by="peak_bytes",
    ),
    Choice(
        "fastest_step", "Over how many ranks is a step fastest?", ("ranks_1", "ranks_2", "ranks_4")
    ),
)


def forecast(plan: RunPlan[Settings]) -> Work:
    """The closed forms of one step of any rank."""
    settings, n = plan.settings, plan.world_size
    shape, activation = settings.shape, settings.activation_bytes
    num_sums = settings.num_forward_sums + settings.num_backward_sums
    tokens = settings.num_samples * settings.length
    passed = Communication("all_reduce", num_sums * activation, num_sums, n)
    return Work(
        peak_bytes=settings.held_bytes + (settings.num_whole_activations * n + 1) * activation // n,
        flops=3.0 * shape.forward_flops(settings.num_samples, settings.length) / n,
        matrix_rows=tokens,
        num_products=3 * 6 * shape.num_layers,
        moved_bytes=30.0 * BYTES_PER_VALUE * tokens * shape.width,
        smooth_values=transformer_values(
            tokens=tokens,
            layers=shape.num_layers,
            width=shape.width,
            hidden=shape.hidden // n,
            num_heads=shape.num_heads // n,
            length=settings.length,
            vocabulary=shape.vocabulary,
        ),
        num_operations=400 if n > 1 else 120,
        optimizer_parameters=settings.num_parameters_per_rank,
        optimizer="fused_adam",
        communication=(passed,) if n > 1 else (),
        num_busy_ranks=n,
    )
