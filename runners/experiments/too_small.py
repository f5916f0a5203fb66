"""Models too small to distribute: one device against two ranks, over the size of the model.

The same two processes take turns: rank 0 trains alone on the whole batch while rank 1 waits, then
both train under DDP on their shares. Whatever disturbs the machine disturbs both alike.

    python -m runners run too_small
"""

from __future__ import annotations

import time
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from runners.closed_forms.work import mlp_parameters
from runners.core.declared.experiment import Declaration
from runners.core.declared.settings import Count, Factor, RunSettings, closed_form
from runners.core.ranks.rank import Rank
from runners.training.networks import description, mlp


def take_turns(rank: Rank[Settings]) -> None:
    """Sweep over the widths; a metered pass takes the widest under DDP alone."""
    settings = rank.settings
    own = slice(rank.rank * settings.batch_size, (rank.rank + 1) * settings.batch_size)
    rank.describe(description(settings.layers_of(settings.widths[-1]), rank.world_size))
    if rank.is_metered:
        replica = Trainee(rank, settings.widths[-1], own, wrapped=True)
        rank.watch(replica.model, replica.optimizer)
        for _ in rank.steps(1):
            replica.step()
        return
    for width in settings.widths:
        single = Trainee(rank, width, slice(None), wrapped=False)
        replica = Trainee(rank, width, own, wrapped=True)
        alone: list[float] = []
        shared: list[float] = []
        for _ in range(NUM_SETTLING_TURNS + settings.num_turns):
            dist.barrier()
            if rank.rank == 0:
                alone.append(single.step())
            dist.barrier()
            shared.append(replica.step())
        rank.measure_seconds(f"single_{width}", alone[NUM_SETTLING_TURNS:])
        rank.measure_seconds(f"ddp_{width}", shared[NUM_SETTLING_TURNS:])


class Trainee:
    """One model on some samples: alone, or as a replica under DDP."""

    def __init__(self, rank: Rank[Settings], width: int, samples: slice, *, wrapped: bool) -> None:
        self.rank, settings = rank, rank.settings
        source = torch.Generator().manual_seed(rank.seed)
        shape = (settings.global_batch_size, width)
        features = torch.randn(shape, generator=source)[samples]
        labels = torch.randint(0, width, shape[:1], generator=source)[samples]
        self.features = features.clone().to(rank.device)
        self.labels = labels.clone().to(rank.device)
        rank.inputs(self.features, self.labels)
        torch.manual_seed(rank.seed)
        self.model: nn.Module = mlp(settings.layers_of(width), device=rank.device)
        self.called = DistributedDataParallel(self.model) if wrapped else self.model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=settings.learning_rate)

    def step(self) -> float:
        """The seconds of forward, backward, update; marked, because two trainees take turns."""
        start = time.perf_counter()
        with self.rank.phase("forward"):
            loss = cross_entropy(self.called(self.features), self.labels)
        with self.rank.phase("backward"):
            loss.backward()
        with self.rank.phase("optimizer"):
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.rank.settle()
        return time.perf_counter() - start


QUESTION = "From which size on does a model gain from a second rank, with as many samples in all?"
NUM_SETTLING_TURNS = 3  # the first build DDP's buckets and fill caches


class Settings(RunSettings):
    """Models of several widths, each trained on the same global batch."""

    widths: tuple[Count, ...] = (16, 32, 64, 128, 256)
    num_layers: Count = 4
    global_batch_size: Count = 512
    num_turns: Count = 15
    learning_rate: Factor = 0.1
    equal_parts = (("global_batch_size", "world_size"),)

    @closed_form
    def batch_size(self) -> int:
        """Samples of a rank under DDP."""
        return self.global_batch_size // self.world_size

    @closed_form
    def num_parameters(self) -> list[int]:
        """Parameters of each model, by width."""
        return [mlp_parameters(self.layers_of(width)) for width in self.widths]

    def layers_of(self, width: int) -> tuple[int, ...]:
        """Input and output widths of all layers of one model."""
        return (width,) * (self.num_layers + 1)


sweep = partial(Declaration, "take_turns", 2)
FAR = Settings(widths=(16, 32, 64, 128, 256, 512, 1024), global_batch_size=1024, num_turns=30)
RUNS = {
    "sweep": sweep(Settings()),
    "sweep_few_samples": sweep(Settings(global_batch_size=64)),
    "sweep_far": sweep(FAR, full=True),
}
TRIED_WITH = {"sweep_far": {"widths": [16, 64, 256], "num_turns": 5}}
ON_CUDA = {"*": {"widths": [128, 256, 512, 1024, 2048, 4096], "global_batch_size": 4096}}
