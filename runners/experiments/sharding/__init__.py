"""What `sharding` runs: a stack of equal layers, five ways of sharding it, and their closed forms.

In: nothing. Out: `RUNS`, every strategy over 1, 2 and 4 ranks, with the bytes that follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from runners.plans.experiment import RunPlan, whole_number
from runners.traces.records import Setting
from runners.training.networks import num_parameters

BYTES_PER_VALUE = 4
COPIES_PER_PARAMETER = 4  # Adam keeps each parameter, its gradient and two moments
WORLD_SIZES = (1, 2, 4)
SHARDED = ("fsdp", "fsdp_freed", "fsdp_kept")
SETTINGS: dict[str, Setting] = {
    "widths": [512] * 9,
    "batch_size": 4,
    "num_steps": 9,
    "learning_rate": 0.001,
}
UNEVEN = [2048, 512, 512, 512]  # the first layer is most of the model
ON_CUDA = {"*": {"widths": [8192] * 9}, "zero_uneven_2": {"widths": [32768, 8192, 8192, 8192]}}


def parts(sizes: Sequence[int], num_ranks: int) -> list[int]:
    """What each rank gets where whole parameters are dealt out, the largest first.

    Each goes to the rank that has least so far, as `ZeroRedundancyOptimizer` deals them.
    """
    loads = [0] * num_ranks
    for size in sorted(sizes, reverse=True):
        loads[loads.index(min(loads))] += size
    return loads


def _at_peak(strategy: str, model: int, layer: int, root: int, part: int) -> tuple[int, int]:
    """Bytes at the peak of a stack of equal layers: what ranks share out, and what each has whole.

    DDP: the four copies, and the buckets. FSDP: near the end of backward the four copies but for
    the gradients of three layers, still to come; whole are the root and its gradient, and four
    layers: the one computed, the next one gathered ahead, a gradient, and its copy to be scattered.
    FSDP without resharding peaks as backward begins to let layers go.
    """
    if strategy == "ddp":
        return 0, 5 * model
    if strategy == "zero":
        return 0, 3 * model + 2 * part
    if strategy == "fsdp_kept":
        return 3 * model + layer, model + root + layer
    return 4 * model - 3 * layer, 2 * root + 4 * layer


def settle(plan: RunPlan) -> RunPlan:
    """The same run with the bytes of its model and of its shares worked out anew.

    Raises:
        ValueError: the widths make no network, or rows of a weight cannot be dealt out equally.
    """
    settings = dict(plan.settings)
    widths = settings["widths"]
    if not isinstance(widths, list) or len(widths) < 3:
        raise ValueError(f"widths must be three or more whole numbers above zero, not {widths!r}")
    numbers = [whole_number({"widths": width}, "widths") for width in widths]
    for name in ("batch_size", "num_steps"):
        whole_number(settings, name)
    if plan.strategy in SHARDED and any(width % plan.world_size for width in numbers[1:]):
        raise ValueError(f"widths {numbers} cannot be sharded equally over {plan.world_size} ranks")
    counts = num_parameters(numbers)
    tensors = [n for a, b in pairwise(numbers) for n in (a * b, b)]
    model, layer, root = (BYTES_PER_VALUE * n for n in (sum(counts), counts[0], counts[-1]))
    part = BYTES_PER_VALUE * max(parts(tensors, plan.world_size))
    shared, whole = _at_peak(plan.strategy, model, layer, root, part)
    settings |= {
        "num_layers": len(counts),
        "copies_per_parameter": COPIES_PER_PARAMETER,
        "bytes_per_value": BYTES_PER_VALUE,
        "model_bytes": model,
        "layer_bytes": layer,  # of the first, which is no smaller than the others
        "root_bytes": root,  # the last layer is the root's own under FSDP
        "largest_part_bytes": part,
        "shared_bytes": shared,
        "whole_bytes": whole,
    }
    return replace(plan, settings=settings)


def _plan(strategy: str, world_size: int, **changed: Setting) -> RunPlan:
    is_timed = world_size == 2 and not changed and strategy != "fsdp_freed"
    return settle(
        RunPlan(
            strategy,
            world_size,
            {**SETTINGS, **changed},
            passes=("timed", "metered") if is_timed else ("metered",),
            has_timeline=False,
            can_share_device=strategy in ("ddp", "zero"),
            full=world_size == 1 and strategy in ("zero", "fsdp_kept"),
        )
    )


RUNS = {
    f"{strategy}_{world_size}": _plan(strategy, world_size)
    for strategy in ("ddp", "zero", "fsdp", "fsdp_kept")
    for world_size in WORLD_SIZES
} | {
    "fsdp_freed_2": _plan("fsdp_freed", 2),
    "zero_uneven_2": _plan("zero", 2, widths=UNEVEN),
}
