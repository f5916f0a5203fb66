"""What the runs of `faults` will need. No torch."""

from __future__ import annotations

from runners.experiments.faults import Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import FLOAT_BYTES, Communication, Work, mlp_flops, mlp_parameters


def forecast(plan: RunPlan[Settings]) -> Work | None:
    """A step of sharded training with Adam; nothing of launchers and of what is replayed."""
    if plan.strategy not in ("undisturbed", "resumed"):
        return None
    settings = plan.settings
    samples, num_layers = settings.batch_size, settings.num_layers
    widths = [settings.width] * (num_layers + 1)
    num_parameters = mlp_parameters(widths)
    num_bytes = FLOAT_BYTES * num_parameters
    return Work(
        flops=mlp_flops(widths, samples),
        matrix_rows=samples,
        num_products=3 * num_layers - 1,
        moved_bytes=4.0 * num_bytes,
        # As a dispatch mode counts them: a layer's, and the group's.
        num_operations=34 * num_layers + 39,
        optimizer_parameters=num_parameters // plan.world_size,
        optimizer="adam",
        communication=(
            Communication("all_gather", num_bytes, 1, plan.world_size),
            Communication("reduce_scatter", num_bytes, 1, plan.world_size),
        ),
        num_busy_ranks=plan.world_size,
    )
