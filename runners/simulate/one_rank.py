"""Simulate one rank of a run, in this process.

In: a run as declared, and the rank. Out: its `RankLog`. The strategy is executed as in a metered
pass, and no phase, hook or meter differs from there. It takes two steps where that takes three.
"""

import tempfile
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from runners.declared.experiment import Declaration, Experiment
from runners.declared.settings import S
from runners.meters.memory import CPU, MemoryMeter
from runners.ranks.rank import Rank
from runners.simulate.fake_mode import ValuelessMode
from runners.simulate.log import RankLog
from runners.simulate.meter import Meter
from runners.simulate.stand_ins import Sent, stand_ins

NUM_STEPS = 2


class _Recorded(BaseException):
    """The counted step is over: what a strategy does then to compare or to grade is not wanted."""


class SimulatedRank(Rank[S]):
    """A rank whose meter is always that of fake tensors.

    Args:
        rank: which.
        declaration: of the run.
        meshes: that the strategy builds.
    """

    def __init__(self, rank: int, declaration: Declaration[S], meshes: list[DeviceMesh]) -> None:
        declaration = replace(declaration, has_timeline=False)
        silence: Any = SimpleNamespace(beat=lambda phase, step: None)  # nobody listens
        super().__init__(rank, declaration, "metered", CPU, silence)
        self._meshes, self._is_gloo = meshes, declaration.nature != "simulated"
        self.meter = Meter(meshes)

    def start_memory(self, meter: MemoryMeter | None = None) -> None:
        """Enter the meter of the simulation, whichever is asked for."""
        self.meter = Meter(self._meshes, is_gloo=self._is_gloo)
        self.meter.log_always = self.declaration.strategy == "program"
        super().start_memory(self.meter)

    def steps(self, count: int) -> Iterator[int]:
        """Two steps, of which the second counts.

        A metered pass takes three. The first creates the optimizer's state; before the second DDP
        rebuilds its buckets; the third is like the second.
        """
        for index in range(NUM_STEPS):
            self.step_index += 1
            if self._memory is not None and index == NUM_STEPS - 1:
                self.meter.counting = True
            yield index % count
            self._of_step.close()
        self.stop_memory()

    def stop_memory(self) -> None:
        """Leave the meter; once it has counted a step, the simulation is over."""
        was_counting = self._memory is not None and self.meter.counting
        super().stop_memory()
        if was_counting:
            raise _Recorded

    def leave_memory(self) -> None:
        """Leave the meter of a rank that ended amid its strategy; another rank follows here."""
        if self._memory is not None:
            self._memory.__exit__(None, None, None)

    def sent_payload_bytes(self) -> int | None:
        """Nothing passes a link here."""
        return 0 if self.declaration.own_network else None

    def log(self) -> RankLog:
        """What this rank recorded."""
        outcome = self.outcome
        return RankLog(
            rank=self.rank,
            memory=outcome.memory,
            collectives=outcome.collectives,
            calls=self.meter.calls(),
            flops=dict(+self.meter.flops),
        )


def simulate_rank(
    experiment: Experiment, declaration: Declaration, rank: int, sent: Sent
) -> RankLog:
    """Execute a run's strategy as one of its ranks.

    Args:
        experiment: whose run it is.
        declaration: the run.
        rank: which of its ranks.
        sent: objects that ranks have sent so far; this rank's are added.

    Raises:
        NotSentError: it waits for an object that nobody has sent.
        UnsimulatedError: it does what cannot be simulated.
        Exception: whatever the strategy raises.
    """
    meshes: list[DeviceMesh] = []
    is_fake_itself = declaration.nature == "simulated"
    stands = stand_ins(rank, declaration.world_size, meshes, sent)
    with tempfile.TemporaryDirectory(prefix="simulated-") as scratch, stands:
        if declaration.needs_group and declaration.world_size > 1:
            dist.init_process_group()
        own: SimulatedRank = SimulatedRank(rank, declaration, meshes)
        own.scratch = Path(scratch)
        mode = nullcontext() if is_fake_itself else ValuelessMode()
        with mode:
            own.start_memory()
            torch.manual_seed(declaration.seed)
            try:
                with suppress(_Recorded):
                    experiment.strategies[declaration.strategy](own)
                    own.finish()
            finally:
                own.leave_memory()
        return own.log()
