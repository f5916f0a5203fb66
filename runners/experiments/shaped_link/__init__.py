"""DDP over links of a set rate: what an all-reduce costs, and what overlap and accumulation save.

Each rank lives in a network namespace of its own, and its one link lets a set number of bits
through in a second (`runners/system/links.py`). The same steps are taken at several rates; at one
of them with one bucket instead of one a layer, with a bucket for each parameter, with one
all_reduce after backward instead of DDP, and with gradients accumulated over several microbatches.
The all-reduce is compared with how long bytes over rate take. Without the right to make links, all
of it is skipped.

    python -m runners run shaped_link
"""

from __future__ import annotations

from functools import cached_property

from runners.plans.closed_forms import ring_bytes
from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor, RunSettings
from runners.plans.work import FLOAT_BYTES, mlp_parameters

QUESTION = (
    "What does a step cost over a slow link, and how much do overlap and accumulation save of it?"
)

NUM_SETTLING_STEPS = 3  # the recorder leaves out as many
MEGABIT = 1_000_000
EACH_LAYER, WHOLE_MODEL, EACH_PARAMETER = 263168, 1 << 22, 1  # bytes of a bucket


class Settings(RunSettings):
    """Equal layers, microbatches, and a link; gradients are reduced once a step."""

    width: Count = 256
    num_layers: Count = 4
    batch_size: Count = 768  # samples of a rank's microbatch
    num_microbatches: Count = 1
    num_steps: Count = 8
    learning_rate: Factor = 0.01
    link_bits_per_second: Count | None = 400 * MEGABIT  # None: as fast as it goes

    @property
    def reductions_per_step(self) -> int:
        """How often gradients are reduced in a step."""
        return 1

    @cached_property
    def gradient_bytes(self) -> int:
        """Of all parameters of one replica."""
        return FLOAT_BYTES * mlp_parameters([self.width] * (self.num_layers + 1))

    @cached_property
    def num_samples_per_step(self) -> int:
        """Of all ranks and microbatches."""
        return self.batch_size * self.num_microbatches * self.world_size

    @cached_property
    def transfer_seconds(self) -> float | None:
        """What the payload of a ring's all-reduces takes in a step: headers come on top."""
        if self.link_bits_per_second is None:
            return None
        payload_bytes = self.reductions_per_step * self.gradient_bytes
        sent_bytes: float = ring_bytes(payload_bytes, self.world_size)
        return 8 * sent_bytes / self.link_bits_per_second

    def check(self) -> None:
        """Refuse runs without a step that counts, or without a link."""
        if self.num_steps <= NUM_SETTLING_STEPS:
            raise ValueError(f"num_steps must be above {NUM_SETTLING_STEPS}, which only settle")
        if self.world_size < 2:
            raise ValueError("world_size must be two or more: one rank sends nothing")


class DdpSettings(Settings):
    """The same under DDP, whose buckets are reduced while backward goes on."""

    num_reductions: Count = 1  # in a step: after the last microbatch, or after each
    bucket_bytes: Count = EACH_LAYER

    @property
    def reductions_per_step(self) -> int:
        """How often gradients are reduced in a step."""
        return self.num_reductions

    def check(self) -> None:
        """Refuse another number of reductions than one and all."""
        super().check()
        if self.num_reductions not in (1, self.num_microbatches):
            raise ValueError(
                f"num_reductions must be 1 or {self.num_microbatches}, the microbatches"
            )


def _plan(settings: Settings, *, full: bool = False) -> RunPlan[Settings]:
    return RunPlan(
        "ddp" if isinstance(settings, DdpSettings) else "after_backward",
        2,
        settings,
        passes=("timed",),
        only_on_cpu=True,
        own_network=True,
        full=full,
    )


def _rate(megabits: int) -> DdpSettings:
    return DdpSettings(link_bits_per_second=megabits * MEGABIT)


RUNS = {
    "mbit_100": _plan(_rate(100)),
    "mbit_400": _plan(_rate(400)),
    "mbit_1600": _plan(_rate(1600)),
    "one_bucket": _plan(DdpSettings(bucket_bytes=WHOLE_MODEL)),
    "after_backward": _plan(Settings()),
    "accumulated": _plan(DdpSettings(batch_size=192, num_microbatches=4)),
    "reduced_each": _plan(DdpSettings(batch_size=192, num_microbatches=4, num_reductions=4)),
    "small_buckets": _plan(DdpSettings(bucket_bytes=EACH_PARAMETER), full=True),
    "mbit_50": _plan(_rate(50), full=True),
    "mbit_200": _plan(_rate(200), full=True),
    "mbit_800": _plan(_rate(800), full=True),
    "unshaped": _plan(DdpSettings(link_bits_per_second=None), full=True),
}
