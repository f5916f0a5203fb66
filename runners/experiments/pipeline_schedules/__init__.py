"""Schedules of a pipeline: how long its ranks are idle, and how many activations they keep.

A stack of equal layers over four ranks, trained on the same batch under every schedule: the whole
batch at once, GPipe, 1F1B, interleaved 1F1B and zero bubble. Each stage counts what it holds; the
undivided model says whether all of them learn the same.

The paced runs measure idle shares: each action of a stage lasts as long as it is told, so four
stages are busy at once on any number of cores. The real runs last as long as they take; the memory
meter sees what they keep.

    python -m runners run pipeline_schedules
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor, RunSettings, Seconds

QUESTION = "How long are the ranks of a pipeline idle, and what does each schedule keep in memory?"
FLOAT_BYTES = 4
NUM_TENSORS_KEPT = 2  # a residual layer keeps what its tanh gave and the sum that it passes on
NUM_UNPACED_STEPS = 3  # buffers and connections come up; a trace leaves these steps out too
NUM_CHUNKS = {"interleaved": 2, "zero_bubble": 2, "zero_bubble_v": 2}
ON_CUDA = {"*": {"width": 1024, "batch_size": 16384}}


class Settings(RunSettings):
    """A stack of equal layers, cut into stages, and how long each of their actions lasts."""

    width: Count = 32
    num_layers: Count = 16
    batch_size: Count = 2048
    num_microbatches: Count = 8
    forward_seconds: Seconds = 0.0  # of one rank and microbatch; 0: as long as it takes
    backward_ratio: Seconds = 2.0  # how much longer a backward lasts than a forward
    slow_ratio: Seconds = 1.0  # how much longer everything lasts on the last rank
    num_steps: Count = NUM_UNPACED_STEPS + 1
    learning_rate: Factor = 1.0

    @cached_property
    def num_chunks(self) -> int:
        """Stages of each rank."""
        return NUM_CHUNKS.get(self.strategy, 1)

    @cached_property
    def num_layers_per_stage(self) -> int:
        """Of each stage; every rank has as many as it has chunks."""
        return self.num_layers // (self.world_size * self.num_chunks)

    @cached_property
    def activation_bytes(self) -> int:
        """What a stage passes on of one microbatch."""
        return FLOAT_BYTES * self.width * (self.batch_size // self.num_microbatches)

    @cached_property
    def kept_bytes(self) -> int:
        """What a stage keeps of one microbatch until its backward."""
        return NUM_TENSORS_KEPT * self.activation_bytes * self.num_layers_per_stage

    @cached_property
    def batch_kept_bytes(self) -> int:
        """The same for all microbatches."""
        return self.kept_bytes * self.num_microbatches

    @cached_property
    def layer_bytes(self) -> int:
        """Parameters of one layer."""
        return FLOAT_BYTES * (self.width * self.width + self.width)

    @cached_property
    def buffer_bytes(self) -> int:
        """Torch holds a buffer for every activation and gradient of a step that comes in."""
        return 2 * self.activation_bytes * self.num_microbatches * self.num_chunks

    @cached_property
    def passing_bytes(self) -> int:
        """Under 1F1B: gradients on their way, and those of the parameters of one layer."""
        return 3 * self.activation_bytes + self.layer_bytes

    @cached_property
    def num_units(self) -> int | float:
        """A rank's work in units of what it waits for each rank before it.

        A unit is a forward and a backward, or a forward alone where the gradients of parameters
        fill the time.
        """
        defers = self.strategy.startswith("zero_bubble")
        return self.num_chunks * self.num_microbatches * (1 + self.backward_ratio if defers else 1)

    @cached_property
    def num_slow_units(self) -> float:
        """The work of the slow rank, in units of the others' forward and backward."""
        return self.num_microbatches * self.slow_ratio

    def check(self) -> None:
        """Refuse a batch or layers that cannot be dealt out equally, or that a schedule refuses."""
        parts, ranks = self.num_microbatches, self.world_size
        if self.batch_size % parts:
            raise ValueError(
                f"batch_size {self.batch_size} is not divisible into {parts} microbatches"
            )
        num_stages = ranks * self.num_chunks
        if self.num_layers % num_stages:
            raise ValueError(f"num_layers {self.num_layers} is not divisible by {num_stages}")
        if self.strategy != "gpipe" and ranks > 1 and parts % ranks:
            raise ValueError(f"num_microbatches {parts} is no multiple of {ranks} ranks")
        if self.num_steps <= NUM_UNPACED_STEPS and self.forward_seconds:
            raise ValueError(
                f"num_steps must be above the {NUM_UNPACED_STEPS} steps without a pace"
            )


def _paced(
    strategy: str,
    parts: int = 8,
    world_size: int = 4,
    forward_seconds: float | None = None,
    backward_ratio: float = 2.0,
    slow_ratio: float = 1.0,
) -> RunPlan[Settings]:
    """Actions long enough that sending tensors hardly counts, in every one of its stages."""
    settings = Settings(
        num_microbatches=parts,
        forward_seconds=forward_seconds or 0.027 * NUM_CHUNKS.get(strategy, 1),
        backward_ratio=backward_ratio,
        slow_ratio=slow_ratio,
    )
    return RunPlan(
        strategy,
        world_size,
        settings,
        passes=("timed",),
        nature="paced",
        has_timeline=False,
        can_share_device=False,
    )


def _real(strategy: str, parts: int = 8, world_size: int = 4) -> RunPlan[Settings]:
    return RunPlan(
        strategy,
        world_size,
        Settings(num_microbatches=parts),
        passes=("metered",),
        has_timeline=False,
        can_share_device=False,
    )


def _drawn(strategy: str) -> RunPlan[Settings]:
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
