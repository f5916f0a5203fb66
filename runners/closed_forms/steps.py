"""Closed forms that claims, Cost rows and calculators share, each stated once. No torch.

In: settings of a run, as numbers; or values that carry a unit and an origin, or symbols of a
formula, since a law uses `+ - * /` alone. Out: the same kind of thing. Content calls a law by its
name: `ring_bytes(run.settings.gradient_bytes, run.world_size)`.
"""

from collections.abc import Callable, Sequence
from typing import Any

Number = Any  # int or float, a `Value` of the generator, or a symbol of a printed formula


def ring_bytes(payload_bytes: Number, ranks: Number) -> Number:
    """Bytes that each rank sends in a ring `all_reduce`.

    Formula: 2 × (ranks − 1) / ranks × payload: every rank passes on all parts but one, first to
    sum them and again to share the sums out.
    Source: patarasuk-yuan.
    """
    return 2 * (ranks - 1) / ranks * payload_bytes


def share_bytes(payload_bytes: Number, ranks: Number) -> Number:
    """Bytes that each rank sends in an `all_gather` or an `all_to_all`.

    Formula: (ranks − 1) / ranks × payload: all parts but one. For an `all_gather`, the payload is
    what each rank ends with.
    Source: thakur-collectives.
    """
    return (ranks - 1) / ranks * payload_bytes


def ddp_bytes(model_bytes: Number, copies: Number) -> Number:
    """Bytes that a rank holds under DDP at its peak, without activations.

    Formula: (copies + 1) × model bytes. A copy each of parameters and gradients, and of what the
    optimizer keeps (Adam: two moments); one more is DDP's buckets.
    Source: pytorch-ddp.
    """
    return (copies + 1) * model_bytes


def ddp_view_bytes(model_bytes: Number, copies: Number, largest_layer_bytes: Number) -> Number:
    """The same with `gradient_as_bucket_view`, where gradients lie in the buckets.

    Formula: copies × model bytes + largest layer: the gradient of one layer is on its way there.
    """
    return copies * model_bytes + largest_layer_bytes


def shard_bytes(model_bytes: Number, copies: Number, ranks: Number) -> Number:
    """Bytes of an equal share of everything that is kept between steps.

    Formula: copies × model bytes / ranks: FSDP, the third stage of ZeRO, or equal stages.
    Source: zero.
    """
    return copies * model_bytes / ranks


def pipeline_idle_share(units: Number, stages: Number) -> Number:
    """Share of a step for which each rank of a pipeline of equal stages is idle.

    Formula: (stages − 1) / (units + stages − 1), where a unit is a microbatch in one of a rank's
    stages; GPipe and 1F1B alike, transfers left out.
    Source: gpipe.
    """
    return (stages - 1) / (units + stages - 1)


def layers_of_stages(num_layers: int, stages: int) -> list[int]:
    """Layers of each pipeline stage: equally many, or one more in the first stages."""
    least, rest = divmod(num_layers, stages)
    return [least + (stage < rest) for stage in range(stages)]


def pipelined_work(simulated: Sequence[Number], inner: Number, microbatches: Number) -> Number:
    """Work that is done one after another, at least, from the start of a pipelined step to its end.

    Formula: last + (first + inner × second) / microbatches. The last stage begins once the first
    microbatch has passed all others, and they end once the last microbatch has passed back.
    `simulated` is the work of a step on the first stage, the second, and the last; all inner stages
    together do `inner` times the second's.
    """
    *before, last = simulated
    first, *second = before
    waited = sum((inner * work for work in second), start=first)
    return last + waited / microbatches


def reaches(
    first_place: Number, first: Number, second_place: Number, second: Number, level: Number
) -> Number:
    """The x at which the straight line through two points (x, y) reaches y = `level`.

    Formula: x₁ + (x₂ − x₁) × (y₁ − level) / (y₁ − y₂).
    """
    return first_place + (second_place - first_place) * (first - level) / (first - second)


LAWS: dict[str, Callable[..., Number]] = {
    law.__name__: law
    for law in (
        ring_bytes,
        share_bytes,
        ddp_bytes,
        ddp_view_bytes,
        shard_bytes,
        pipeline_idle_share,
        pipelined_work,
        reaches,
    )
}
