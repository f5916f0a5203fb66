"""What `pipeline_schedules` runs, and what follows from its settings. No torch.

In: nothing. Out: `RUNS`. The paced runs measure idle shares: each action of a stage lasts as long
as it is told, so four stages are busy at once on any number of cores. The real runs last as long as
they take; the memory meter sees what they keep.
"""

from __future__ import annotations

from dataclasses import replace

from runners.plans.experiment import RunPlan, whole_number
from runners.traces.records import Setting

FLOAT_BYTES = 4
NUM_TENSORS_KEPT = 2  # a residual layer keeps what its tanh gave and the sum that it passes on
NUM_UNPACED_STEPS = 3  # buffers and connections come up; a trace leaves these steps out too
NUM_CHUNKS = {"interleaved": 2, "zero_bubble": 2, "zero_bubble_v": 2}
SETTINGS: dict[str, Setting] = {
    "width": 32,
    "num_layers": 16,
    "batch_size": 2048,
    "num_microbatches": 8,
    "forward_seconds": 0.0,  # of one rank and microbatch; 0: as long as it takes
    "backward_ratio": 2.0,  # how much longer a backward lasts than a forward
    "slow_ratio": 1.0,  # how much longer everything lasts on the last rank
    "num_steps": NUM_UNPACED_STEPS + 1,
    "learning_rate": 1.0,
}


def settle(plan: RunPlan) -> RunPlan:
    """The same run with the sizes of its parts worked out anew.

    Raises:
        ValueError: the batch or the layers cannot be dealt out equally, or the schedule refuses.
    """
    settings = dict(plan.settings)
    rows, parts = whole_number(settings, "batch_size"), whole_number(settings, "num_microbatches")
    layers, width = whole_number(settings, "num_layers"), whole_number(settings, "width")
    chunks = NUM_CHUNKS.get(plan.strategy, 1)
    if rows % parts:
        raise ValueError(f"batch_size {rows} is not divisible into {parts} microbatches")
    if layers % (plan.world_size * chunks):
        raise ValueError(f"num_layers {layers} is not divisible by {plan.world_size * chunks}")
    if plan.strategy != "gpipe" and plan.world_size > 1 and parts % plan.world_size:
        raise ValueError(f"num_microbatches {parts} is no multiple of {plan.world_size} ranks")
    if whole_number(settings, "num_steps") <= NUM_UNPACED_STEPS and plan.nature == "paced":
        raise ValueError(f"num_steps must be above the {NUM_UNPACED_STEPS} steps without a pace")
    for name in ("forward_seconds", "backward_ratio", "slow_ratio"):
        value = settings[name]
        if not isinstance(value, int | float) or value < 0:
            raise ValueError(f"{name} must be a number not below nought, not {value!r}")
    ratio, slow = (float(str(settings[name])) for name in ("backward_ratio", "slow_ratio"))
    defers = plan.strategy.startswith("zero_bubble")
    activation = FLOAT_BYTES * width * (rows // parts)
    per_stage = layers // (plan.world_size * chunks)
    settings |= {
        "num_chunks": chunks,
        "num_layers_per_stage": per_stage,
        "activation_bytes": activation,
        "kept_bytes": NUM_TENSORS_KEPT * activation * per_stage,
        "batch_kept_bytes": NUM_TENSORS_KEPT * activation * per_stage * parts,
        "layer_bytes": FLOAT_BYTES * (width * width + width),
        # Torch holds one for every activation and gradient of a step that comes in.
        "buffer_bytes": 2 * activation * parts * chunks,
        # Under 1F1B: gradients on their way, and those of the parameters of one layer.
        "passing_bytes": 3 * activation + FLOAT_BYTES * (width * width + width),
        # A rank's work in units of what it waits for each rank before it: a forward and a
        # backward, or a forward alone where the parameters' gradients fill the time.
        "num_units": chunks * parts * (1 + ratio if defers else 1),
        "num_slow_units": parts * slow,
    }
    return replace(plan, settings=settings)


def _paced(strategy: str, parts: int = 8, world_size: int = 4, **more: Setting) -> RunPlan:
    """Actions long enough that handing tensors over hardly counts, in every one of its stages."""
    seconds = 0.027 * NUM_CHUNKS.get(strategy, 1)
    plan = RunPlan(
        strategy,
        world_size,
        {**SETTINGS, "num_microbatches": parts, "forward_seconds": seconds, **more},
        passes=("timed",),
        nature="paced",
        has_timeline=False,
        can_share_device=False,
    )
    return settle(plan)


def _real(strategy: str, parts: int = 8, world_size: int = 4) -> RunPlan:
    plan = RunPlan(
        strategy,
        world_size,
        {**SETTINGS, "num_microbatches": parts},
        passes=("metered",),
        has_timeline=False,
        can_share_device=False,
    )
    return settle(plan)


def _drawn(strategy: str) -> RunPlan:
    """The same with a timeline, for a picture."""
    return replace(_paced(strategy), passes=("metered",), has_timeline=True)


SCHEDULES = {
    "gpipe": "gpipe",
    "1f1b": "one_f_one_b",
    "interleaved": "interleaved",
    "zero_bubble": "zero_bubble",
}
LONG = 0.12  # seconds of the forwards of two stages
HEAVIER = {
    **{f"paced_gpipe_{m}": _paced("gpipe", m) for m in (2, 4, 16)},
    "paced_1f1b_16": _paced("one_f_one_b", 16),
    "paced_interleaved_16": _paced("interleaved", 16),
    "paced_zero_bubble_long": _paced("zero_bubble", forward_seconds=LONG),
    "paced_zero_bubble_v": _paced("zero_bubble_v", forward_seconds=LONG),
    # As much work for a rank as under GPipe and 1F1B: its two stages take half as long each.
    "paced_interleaved_short": _paced("interleaved", forward_seconds=0.027),
    "paced_zero_bubble_short": _paced("zero_bubble", forward_seconds=0.027),
    "paced_gpipe_two_ranks": _paced("gpipe", world_size=2),
    "paced_1f1b_two_ranks": _paced("one_f_one_b", world_size=2),
    "paced_gpipe_equal": _paced("gpipe", forward_seconds=0.04, backward_ratio=1.0),
    "paced_1f1b_equal": _paced("one_f_one_b", forward_seconds=0.04, backward_ratio=1.0),
    "paced_gpipe_slow": _paced("gpipe", slow_ratio=2.0),
    **{f"drawn_{name}": _drawn(SCHEDULES[name]) for name in ("gpipe", "1f1b", "zero_bubble")},
    "real_interleaved": _real("interleaved"),
    "real_zero_bubble": _real("zero_bubble"),
    "real_zero_bubble_v": _real("zero_bubble_v"),
    "real_gpipe_16": _real("gpipe", 16),
    "real_1f1b_16": _real("one_f_one_b", 16),
    "real_gpipe_two_ranks": _real("gpipe", world_size=2),
    "real_1f1b_two_ranks": _real("one_f_one_b", world_size=2),
}
RUNS = {
    "paced_one_batch": _paced("gpipe", 1),
    **{f"paced_{name}": _paced(strategy) for name, strategy in SCHEDULES.items()},
    "real_single": _real("single", world_size=1),
    "real_gpipe": _real("gpipe"),
    "real_1f1b": _real("one_f_one_b"),
    **{name: replace(plan, full=True) for name, plan in HEAVIER.items()},
}
