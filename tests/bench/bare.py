"""A rank that marks, meters and records nothing: what a plain script's process is.

A strategy meets in it what it reads (rank, settings, device, group) and nothing that costs: no
heartbeat, no clock around a step, no digest. So it does the work of a run and nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from runners.plans.experiment import PassName, RunPlan
from runners.ranks.heartbeat import Heart
from runners.ranks.rank import NUM_METERED_STEPS, Rank

_NOTHING: AbstractContextManager[None] = nullcontext()


class _StillHeart(Heart):
    """One that nobody listens to."""

    def __init__(self) -> None:
        pass

    def beat(self, phase: str, step: int) -> None:
        """Say nothing."""


def pass_of(plan: RunPlan) -> PassName:
    """The pass that a plain script repeats: to the end; of a run that has none, its few steps."""
    return "timed" if "timed" in plan.passes else plan.passes[0]


class BareRank(Rank):
    """A `Rank` whose marks do nothing."""

    def __init__(self, rank: int, plan: RunPlan, device: torch.device) -> None:
        super().__init__(rank, plan, pass_of(plan), device, _StillHeart())

    def phase(self, name: str, *, computes: bool = True) -> AbstractContextManager[None]:  # type: ignore[override]
        """No mark."""
        return _NOTHING

    def stage(  # type: ignore[override]
        self, name: str, operation: str, of: Tensor | None = None, everywhere: bool = False
    ) -> AbstractContextManager[Callable[[Tensor], None]]:
        """Show nothing."""
        return nullcontext(_ignore)

    def predict(  # type: ignore[override]
        self, name: str, operation: str, of: Tensor, facts: Any = None
    ) -> AbstractContextManager[Callable[[Tensor], None]]:
        """Show nothing."""
        return nullcontext(_ignore)

    def steps(self, count: int) -> Iterator[int]:
        """The steps of one epoch, without a clock; as few as are metered where none is timed."""
        for index in range(NUM_METERED_STEPS if self.is_metered else count):
            self.step_index += 1
            yield index % count

    def watch(self, module: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Remember what is trained, for the digest that a test asks for."""
        self._module = module

    def start_memory(self, meter: Any = None) -> None:
        """No meter."""

    def stop_memory(self) -> None:
        """No meter."""

    def inputs(self, *tensors: Tensor) -> None:
        """No meter asks."""

    def describe(self, model: Any) -> None:
        """Keep nothing."""

    def epoch(self, epoch: int, **seen: Any) -> None:
        """Keep nothing."""

    def step_loss(self, loss: float) -> None:
        """Keep nothing."""

    def measure(self, name: str, value: Any) -> None:
        """Keep nothing."""

    def measure_seconds(self, name: str, samples: Iterable[float]) -> None:
        """Keep nothing."""

    def count_samples(self, count: int) -> None:
        """Keep nothing."""

    def _passed(self, operation: str, peer: int, pass_on: Callable[[], Any]) -> None:
        pass_on()


def _ignore(tensor: Tensor) -> None:
    pass
