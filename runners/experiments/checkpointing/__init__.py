"""Which activations to keep: all, those between segments of layers, or those between all layers.

A stack of equal blocks, each of which keeps more inside than at its border. Kept whole; cut into
√n segments whose insides are computed again in backward; cut between every two layers; and cut
where border and inside together are least. Beside the peaks stands what was computed again, as
`FlopCounterMode` counts it, and the digest of the gradients. `recomputation` shows one such cut
under `checkpoint_sequential`; here the depth grows, and the cut with it.

    python -m runners run checkpointing
"""

from __future__ import annotations

import math
from functools import cached_property

from runners.plans.experiment import PassName, RunPlan
from runners.plans.settings import Count, Factor, RunSettings

QUESTION = (
    "How does the peak grow with depth, and how much is recomputed, for each choice "
    "of what to keep?"
)
BYTES_PER_VALUE = 4
WIDENING = 4  # of a block's inside


class Settings(RunSettings):
    """A stack of equal blocks, whose activations are all kept."""

    num_layers: Count = 16
    width: Count = 32
    batch_size: Count = 512
    num_steps: Count = 9
    learning_rate: Factor = 0.1

    @cached_property
    def border_bytes(self) -> int:
        """The activations between two blocks."""
        return BYTES_PER_VALUE * self.batch_size * self.width

    @cached_property
    def inside_bytes(self) -> int:
        """What a block keeps for backward: its input, and the widened activations."""
        return self.border_bytes * (1 + WIDENING)

    @cached_property
    def passing_bytes(self) -> int:
        """Gradients while a block is differentiated: its border's, and those around the ReLU."""
        return self.border_bytes * (1 + 2 * WIDENING)

    @cached_property
    def num_product_flops(self) -> int:
        """Operations of one matrix product of a block; it has two in forward."""
        return 2 * self.batch_size * self.width * WIDENING * self.width


class Cut(Settings):
    """The same stack in segments: only the activations between them are kept in forward."""

    segment_length: Count = 1
    stops_early: bool = True

    @cached_property
    def num_segments(self) -> int:
        """Checkpointed one after another."""
        return self.num_layers // self.segment_length

    def check(self) -> None:
        """Refuse layers that segments of this length do not divide."""
        if self.num_layers % self.segment_length:
            raise ValueError(
                f"num_layers {self.num_layers} cannot be cut into segments of {self.segment_length}"
            )


def _run(settings: Settings, *passes: PassName) -> RunPlan[Settings]:
    strategy = "recomputed" if isinstance(settings, Cut) else "kept"
    timed: tuple[PassName, ...] = ("timed",) if settings.num_layers == 16 else ()
    return RunPlan(strategy, 1, settings, passes=passes or (*timed, "metered"), has_timeline=False)


DEPTHS = (9, 16, 36)
RUNS = {
    **{f"kept_{n}": _run(Settings(num_layers=n)) for n in DEPTHS},
    **{f"root_{n}": _run(Cut(num_layers=n, segment_length=math.isqrt(n))) for n in DEPTHS},
    **{f"each_{n}": _run(Cut(num_layers=n)) for n in DEPTHS},
    "each_16_to_the_end": _run(Cut(stops_early=False), "metered"),
    "least_36": _run(Cut(num_layers=36, segment_length=3)),
}
ON_CUDA = {"*": {"width": 1024, "batch_size": 4096}}
