"""Strong and weak scaling over ranks, and over links, beside what Amdahl and α–β predict.

`one` is a single device. Under strong scaling (`strong_2`, `strong_4`) the same batch is dealt out
to more ranks; under weak scaling (`weak_2`, `weak_4`) each further rank brings as many samples
again. `link_fast` and `link_slow` are strong scaling where ranks communicate over links of a set
rate: over one a second rank pays, over the other it does not.

`one` times apart what more ranks share (forward and backward) and what each of them does whole (the
update). Each run of several ranks fits t = α + β·bytes to bare all_reduces of half of the
gradients at most, and predicts the time of one of all of them. A step is then predicted as
compute / ranks + update + all_reduce. More ranks than cores are shown and marked, and fit nothing.

    python -m runners run scaling
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from runners.plans.closed_forms import ring_bytes
from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor
from runners.plans.work import mlp_parameters
from runners.training.settings import StackSettings

QUESTION = (
    "How much faster is a step on more ranks, and from which number on do more ranks not pay?"
)

VALUE_BYTES = 4
NUM_SETTLING_STEPS = 3  # the recorder leaves out as many
MEGABIT = 1_000_000
NUM_SAMPLES = 800


class Settings(StackSettings):
    """A stack of equal layers and a batch, dealt out to the ranks."""

    width: Count = 320
    num_layers: Count = 4
    global_batch_size: Count = NUM_SAMPLES
    num_steps: Count = 8
    learning_rate: Factor = 0.1

    @cached_property
    def batch_size(self) -> int:
        """Samples of one rank."""
        return self.global_batch_size // self.world_size

    def check(self) -> None:
        """Refuse a batch that the ranks cannot share equally, and steps that only settle."""
        samples, ranks = self.global_batch_size, self.world_size
        if samples % ranks:
            raise ValueError(f"global_batch_size {samples} is not divisible by {ranks} ranks")
        if self.num_steps <= NUM_SETTLING_STEPS:
            raise ValueError(f"num_steps must be above {NUM_SETTLING_STEPS}, which only settle")


class ReplicaSettings(Settings):
    """Of several ranks, which average their gradients."""

    @cached_property
    def gradient_bytes(self) -> int:
        """Of the whole model."""
        return VALUE_BYTES * mlp_parameters(self.widths)


class LinkedSettings(ReplicaSettings):
    """Of ranks with a link of their own each."""

    link_bits_per_second: Count = 200 * MEGABIT

    @cached_property
    def transfer_seconds(self) -> float:
        """That a ring all_reduce of the gradients takes on the link at least."""
        sent_bytes: float = ring_bytes(self.gradient_bytes, self.world_size)
        return 8 * sent_bytes / self.link_bits_per_second


def _shared(world_size: int, samples: int = NUM_SAMPLES) -> RunPlan:
    return RunPlan("ddp", world_size, ReplicaSettings(global_batch_size=samples), passes=("timed",))


def _linked(world_size: int, megabits: int, samples: int = NUM_SAMPLES) -> RunPlan:
    settings = LinkedSettings(global_batch_size=samples, link_bits_per_second=megabits * MEGABIT)
    return RunPlan(
        "ddp", world_size, settings, passes=("timed",), only_on_cpu=True, own_network=True
    )


RUNS = {
    "one": RunPlan("single", 1, Settings(), passes=("timed",)),
    "strong_2": _shared(2),
    "strong_4": _shared(4),
    "weak_2": _shared(2, 2 * NUM_SAMPLES),
    "weak_4": _shared(4, 4 * NUM_SAMPLES),
    "link_fast": _linked(2, 1600),
    "link_slow": _linked(2, 200),
    **{f"link_{m}": replace(_linked(2, m), full=True) for m in (100, 400, 800)},
    "link_weak": replace(_linked(2, 200, 2 * NUM_SAMPLES), full=True),
    "link_four": replace(_linked(4, 200), full=True),
}
