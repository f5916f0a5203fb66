"""More ranks make the batch larger: what becomes of the learning rate, over the same samples.

One rank and several train the same classifier under DDP, each rank with the batch that the one
has, until the same number of samples is seen. The learning rate stays (`fixed`), grows with the
ranks (`scaled`), or grows to that during the first updates (`warmed`). In the `gentle` runs the
rate is so small that parameters hardly move, which is where linear scaling follows from arithmetic.

    python -m runners run batch_and_rate
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor
from runners.training.settings import GlobalBatchSettings

QUESTION = "How should the learning rate change with the ranks when each rank brings its own batch?"


class Settings(GlobalBatchSettings):
    """A small classifier, and the learning rate of one rank."""

    num_samples: Count = 6400
    num_epochs: Count = 2
    num_looks: Count = 8
    learning_rate: Factor = 0.05

    @cached_property
    def num_updates(self) -> int:
        """In all epochs."""
        return self.num_samples // self.global_batch_size * self.num_epochs

    def check(self) -> None:
        """Refuse samples that leave a batch unfilled, and looks that fall within an update."""
        samples, ranks, updates = self.num_samples, self.world_size, self.num_updates
        if samples % ranks or samples // ranks % self.batch_size:
            raise ValueError(
                f"{samples} samples are no whole batches of {self.batch_size} for {ranks} ranks"
            )
        if updates % self.num_looks:
            raise ValueError(f"{updates} updates are no multiple of num_looks {self.num_looks}")


class WarmedSettings(Settings):
    """The learning rate rises over the first updates."""

    num_warm_up_updates: Count


def _plan(strategy: str, ranks: int, settings: Settings) -> RunPlan:
    return RunPlan(
        strategy, ranks, settings, passes=("timed",), keeps_steps=True, has_timeline=False
    )


GENTLE = Settings(num_epochs=1, learning_rate=0.001, momentum=0.0)
RUNS = {
    "one": _plan("fixed", 1, Settings()),
    "fixed": _plan("fixed", 4, Settings()),
    "scaled": _plan("scaled", 4, Settings()),
    "warmed": _plan("warmed", 4, WarmedSettings(num_warm_up_updates=32)),
    "fixed_eight": replace(_plan("fixed", 8, Settings()), full=True),
    "scaled_eight": replace(_plan("scaled", 8, Settings()), full=True),
    "warmed_eight": replace(_plan("warmed", 8, WarmedSettings(num_warm_up_updates=16)), full=True),
    "one_gentle": _plan("fixed", 1, GENTLE),
    "fixed_gentle": _plan("fixed", 4, GENTLE),
    "scaled_gentle": _plan("scaled", 4, GENTLE),
}
