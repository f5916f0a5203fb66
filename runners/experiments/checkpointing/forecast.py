"""What the runs of `checkpointing` will need. No torch."""

from __future__ import annotations

from runners.experiments.checkpointing import BYTES_PER_VALUE, WIDENING, Cut, Settings
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Work

LABEL_BYTES = 8
CHOICES = (
    Choice(
        "fastest",
        "Which takes the shortest step: everything kept, or cut in one way or the other?",
        ("kept_16", "root_16", "each_16"),
    ),
    Choice(
        "smallest",
        "Which has the lowest peak in a deep stack?",
        ("kept_36", "root_36", "each_36", "least_36"),
        by="peak_bytes",
    ),
)


def forecast(plan: RunPlan[Settings]) -> Work:
    """One step: what is kept, passing and gathered as gradients at the worst moment."""
    settings = plan.settings
    layers, width, border = settings.num_layers, settings.width, settings.border_bytes
    products, moved, operations, segments = 6 * layers - 1, 41 * layers + 10, 34 * layers + 8, 1
    if isinstance(settings, Cut):
        segments = settings.num_segments
        saved = segments if settings.stops_early else 0  # each segment's last product
        products += 2 * layers - saved
        moved += 15 * layers
        operations += 14 * layers - 4 - 2 * saved
    parameters = layers * (2 * WIDENING * width * width + WIDENING * width + width)
    return Work(
        peak_bytes=_peak_bytes(settings, segments, BYTES_PER_VALUE * parameters // layers),
        flops=settings.num_product_flops * products,
        matrix_rows=settings.batch_size,
        num_products=products,
        moved_bytes=border * moved,
        block_bytes=WIDENING * border,
        num_operations=operations,
        optimizer_parameters=parameters,
    )


def _peak_bytes(settings: Settings, segments: int, layer_bytes: int) -> int:
    """The highest of the moments at which backward begins with a segment, the last one first."""
    border, length = settings.border_bytes, settings.num_layers // segments
    kept = length * settings.inside_bytes + settings.passing_bytes - border
    held = settings.num_layers * layer_bytes + border + LABEL_BYTES * settings.batch_size
    moments = (
        (before * border + (segments - 1 - before) * length * layer_bytes)
        for before in range(1 if length == 1 else 0, segments)  # the input needs no gradient
    )
    return held + kept + max(moments) + layer_bytes // 2
