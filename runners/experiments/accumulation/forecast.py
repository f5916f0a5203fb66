"""What the runs of `accumulation` will need. No torch."""

from __future__ import annotations

from dataclasses import replace

from runners.experiments.accumulation import Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Communication, Work, stack_work

CHOICES = (
    Choice(
        "fastest",
        "Which update of the same samples is shortest: whole, accumulated, or reduced after each?",
        ("whole", "accumulated", "reduced_each"),
    ),
    Choice("smallest", "Which has the lowest peak?", ("whole", "accumulated"), by="peak_bytes"),
)


def forecast(plan: RunPlan[Settings]) -> Work | None:
    """One update of a rank: its samples' products, and an all-reduce or one for each microbatch."""
    if plan.strategy != "train":
        return None
    settings = plan.settings
    parts, layers, model = settings.num_microbatches, settings.num_layers, settings.model_bytes
    one = stack_work(settings.widths, settings.microbatch_size)
    reductions = parts if settings.reduces_each else 1
    # Every microbatch but the first adds its gradients to those that are there.
    added, copied = 3 * (parts - 1) * model, 4 * reductions * model
    return replace(
        one,
        peak_bytes=settings.sample_bytes + model + _peak_in_backward(settings),
        flops=parts * one.flops,
        num_products=parts * one.num_products,
        moved_bytes=parts * one.moved_bytes + added + copied,
        num_operations=parts * one.num_operations + 2 * layers * reductions,
        communication=(
            Communication("all_reduce", reductions * model, reductions, plan.world_size),
        ),
        num_busy_ranks=plan.world_size,
    )


def _peak_in_backward(settings: Settings) -> int:
    """Buckets, activations and gradients at the worst moment of backward.

    From the second microbatch on the gradients of the first are held all along; with a single one
    they come as activations go, and the worst is at the begin or at the end.
    """
    model, one, layer = settings.model_bytes, settings.activation_bytes, settings.layer_bytes
    layers = settings.num_layers
    if settings.num_microbatches > 1:
        return 2 * model + (layers + 1) * one + max(one, layer)
    return model + max((layers + 2) * one, 3 * one + (layers - 1) * layer)
