"""What the runs of `accumulation` will need. No torch."""

from __future__ import annotations

from dataclasses import replace

from runners.experiments.accumulation import Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Exchange, Work, stack_work

CHOICES = (
    Choice(
        "fastest",
        "Which takes the shortest update of as many rows: whole, accumulated, or exchanged each?",
        ("whole", "accumulated", "exchanged"),
    ),
    Choice("smallest", "Which has the lowest peak?", ("whole", "accumulated"), by="peak_bytes"),
)


def forecast(plan: RunPlan[Settings]) -> Work | None:
    """One update of a rank: its rows' products, and an all-reduce or one for each microbatch."""
    if plan.strategy != "train":
        return None
    settings = plan.settings
    parts, layers, model = settings.num_microbatches, settings.num_layers, settings.model_bytes
    one = stack_work(settings.widths, settings.microbatch_size)
    exchanges = parts if settings.exchanges_each else 1
    # Every microbatch but the first adds its gradients to those that are there.
    added, copied = 3 * (parts - 1) * model, 4 * exchanges * model
    return replace(
        one,
        peak_bytes=settings.row_bytes + model + _peak_in_backward(settings),
        flops=parts * one.flops,
        num_products=parts * one.num_products,
        moved_bytes=parts * one.moved_bytes + added + copied,
        num_operations=parts * one.num_operations + 2 * layers * exchanges,
        exchanges=(Exchange("all_reduce", exchanges * model, exchanges, plan.world_size),),
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
