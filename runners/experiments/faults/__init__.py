"""A rank dies, and training goes on: under the elastic launcher, from a distributed checkpoint.

The same sharded training is left in peace, killed at a step that a seed decides and resumed, and
resumed with a part of its state forgotten. What a checkpoint and a restart cost is measured, and
then replayed over failure times of a long training: how often should one save?

    python -m runners run faults
"""

from __future__ import annotations

import random
from functools import cached_property
from typing import Literal

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, CountOrZero, Factor, RunSettings

QUESTION = "What does it take for a training run that was killed to end as if nothing had happened?"


class Settings(RunSettings):
    """A stack of layers of width², trained by Adam."""

    width: Count = 640
    num_layers: Count = 2
    batch_size: Count = 32
    num_steps: Count = 30
    learning_rate: Factor = 0.001


class ResumedSettings(Settings):
    """The same, saved after some steps and loaded without what is forgotten."""

    stop_step: Count = 16
    forgets: Literal["nothing", "optimizer", "position"] = "nothing"

    def check(self) -> None:
        """Refuse to stop after the end."""
        if self.stop_step > self.num_steps:
            raise ValueError("stop_step lies beyond num_steps")


class ElasticSettings(Settings):
    """The same under the elastic launcher: which ranks die when, and from where all go on."""

    num_ranks: Count = 2
    checkpoint_every: Count = 8
    num_deaths: Count = 1
    moment: Literal["step", "save"] = "step"
    fault_seed: CountOrZero = 27

    @property
    def moments(self) -> range:
        """The steps before which, or in the saves after which, a rank can die."""
        every = self.checkpoint_every
        return (
            range(every, self.num_steps + 1, every)
            if self.moment == "save"
            else range(1, self.num_steps)
        )

    def _deaths(self) -> tuple[list[int], list[int]]:
        """The steps of the deaths, and the ranks that die: drawn one after the other."""
        source = random.Random(self.fault_seed)
        steps = sorted(source.sample(self.moments, self.num_deaths))
        # The first rank writes what makes a checkpoint whole: its death tears a save.
        in_save = self.moment == "save"
        return steps, [0 if in_save else source.randrange(self.num_ranks) for _ in steps]

    @cached_property
    def death_steps(self) -> list[int]:
        """The steps before which, or in the saves after which, ranks die."""
        return self._deaths()[0]

    @cached_property
    def death_ranks(self) -> list[int]:
        """The ranks that die, in the order of the deaths."""
        return self._deaths()[1]

    @cached_property
    def last_saved_steps(self) -> list[int]:
        """The steps from which training goes on after each death."""
        every = self.checkpoint_every
        return [(step - (self.moment == "save")) // every * every for step in self.death_steps]

    @cached_property
    def num_steps_at_risk(self) -> int:
        """Steps that the deaths lose."""
        return sum(d - s for d, s in zip(self.death_steps, self.last_saved_steps, strict=True))

    def check(self) -> None:
        """Refuse more deaths than there are moments to die."""
        if self.num_deaths > len(self.moments):
            raise ValueError(
                f"num_deaths must be at most {len(self.moments)}: there are no more moments"
            )


class ReplayedSettings(RunSettings):
    """A long training on paper: how often its machine fails."""

    mtbf_seconds: Count
    num_failures: Count = 5000
    fault_seed: CountOrZero = 1


def _plan(
    strategy: str, world_size: int, settings: RunSettings, *, full: bool = False
) -> RunPlan[RunSettings]:
    is_replayed = isinstance(settings, ReplayedSettings)
    return RunPlan(
        strategy,
        world_size,
        settings,
        passes=("timed",),
        has_timeline=False,
        only_on_cpu=True,  # the elastic launcher's ranks are; all must be comparable to the bit
        nature="simulated" if is_replayed else "real",
        follows="killed" if is_replayed else None,
        full=full,
    )


RUNS = {
    "undisturbed": _plan("undisturbed", 2, Settings()),
    "resumed": _plan("resumed", 2, ResumedSettings()),
    "resumed_without_optimizer": _plan("resumed", 2, ResumedSettings(forgets="optimizer")),
    "resumed_without_position": _plan("resumed", 2, ResumedSettings(forgets="position")),
    "killed": _plan("elastic", 1, ElasticSettings()),
    "replayed_minute": _plan("replayed", 1, ReplayedSettings(mtbf_seconds=60)),
    "replayed_hour": _plan("replayed", 1, ReplayedSettings(mtbf_seconds=3600)),
    "killed_three_times": _plan(
        "elastic", 1, ElasticSettings(num_deaths=3, fault_seed=9), full=True
    ),
    "killed_while_saving": _plan("elastic", 1, ElasticSettings(moment="save"), full=True),
    "killed_without_checkpoint": _plan(
        "elastic", 1, ElasticSettings(checkpoint_every=31), full=True
    ),
}
