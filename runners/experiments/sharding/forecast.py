"""What the runs of `sharding` will need. No torch."""

from __future__ import annotations

from runners.experiments.sharding import BYTES_PER_VALUE, SHARDED, Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Communication, Work, mlp_flops

CHOICES = (
    Choice(
        "least_memory",
        "Over four ranks, which of these keeps the peak of a rank lowest?",
        ("ddp_4", "zero_4", "fsdp_4", "fsdp_kept_4"),
        by="peak_bytes",
    ),
    Choice(
        "fastest_step",
        "Over two ranks, which of these has the shortest step?",
        ("ddp_2", "zero_2", "fsdp_2", "fsdp_kept_2"),
    ),
)


def forecast(plan: RunPlan[Settings]) -> Work:
    """The closed forms of one step of any rank."""
    settings, n = plan.settings, plan.world_size
    model = settings.model_bytes
    part = settings.largest_part_bytes if plan.strategy == "zero" else model
    sharded = plan.strategy in SHARDED
    return Work(
        peak_bytes=settings.shared_bytes // n + settings.whole_bytes,
        flops=mlp_flops(settings.widths, settings.batch_size),
        # Weights are read forward and backward and gradients written; then buckets or copies.
        moved_bytes=(9.0 if sharded else 5.0) * model,
        num_operations=settings.num_layers * (60 if sharded else 15),
        optimizer_parameters=part // BYTES_PER_VALUE // (n if sharded else 1),
        optimizer="fused_adam",
        communication=_communication(plan) if n > 1 else (),
        num_busy_ranks=n,
    )


def _communication(plan: RunPlan[Settings]) -> tuple[Communication, ...]:
    """What one rank sends in a step, by collective."""
    settings, n = plan.settings, plan.world_size
    model, num_layers = settings.model_bytes, settings.num_layers
    if plan.strategy not in SHARDED:
        reduced = Communication("all_reduce", model, 2, n)
        broadcast = Communication("broadcast", model, 2 * num_layers, n)
        return (reduced,) if plan.strategy == "ddp" else (reduced, broadcast)
    again, num_again = {
        "fsdp": (model - settings.root_bytes, num_layers - 1),
        "fsdp_freed": (model, num_layers),
        "fsdp_kept": (0, 0),
    }[plan.strategy]
    return (
        Communication("all_gather", model + again, num_layers + num_again, n),
        Communication("reduce_scatter", model, num_layers, n),
    )
