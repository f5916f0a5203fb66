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

import time
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from runners.plans.closed_forms import ring_bytes
from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor
from runners.plans.work import FLOAT_BYTES, mlp_parameters
from runners.ranks.rank import Rank
from runners.traces.schema import Setting
from runners.training.settings import StackSettings
from runners.training.steps import stack_for
from runners.training.transfers import fit, seconds_alone


def single(rank: Rank[Settings]) -> None:
    """The whole batch on one device."""
    _train(rank, stack_for(rank))


def ddp(rank: Rank[ReplicaSettings]) -> None:
    """A part of the batch on each rank, gradients averaged; and the expected cost of averaging."""
    model = stack_for(rank)
    _predict_all_reduce(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model)
    before = rank.link_count()
    _train(rank, replica)
    after = rank.link_count()
    if before is not None and after is not None:
        sent = (after - before).sent_payload_bytes / rank.settings.num_steps
        rank.measure("sent_bytes", sent)


def _train(rank: Rank[Settings], model: nn.Module) -> None:
    """Take steps; time apart what more ranks would share and what each does whole."""
    settings = rank.settings
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    features, labels = _own_samples(rank)
    rank.watch(model, optimizer)
    compute, update, loss = [], [], torch.zeros(())
    for _ in rank.steps(settings.num_steps):
        start = time.perf_counter()
        loss = cross_entropy(model(features), labels)
        loss.backward()
        rank.settle()
        computed = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad()
        rank.settle()
        compute.append(computed - start)
        update.append(time.perf_counter() - computed)
    # In a replica, backward holds the all_reduce as well: only one device tells the two apart.
    if rank.world_size == 1:
        rank.measure_seconds("compute", compute[NUM_SETTLING_STEPS:])
    rank.measure_seconds("update", update[NUM_SETTLING_STEPS:])
    rank.count_samples(settings.batch_size * settings.num_steps)
    rank.epoch(1, loss=loss.item(), num_samples=settings.batch_size)


def _own_samples(rank: Rank[Settings]) -> tuple[Tensor, Tensor]:
    """This rank's part of a batch that is the same however many ranks share it."""
    settings = rank.settings
    with rank.phase("samples"):
        source = torch.Generator().manual_seed(rank.seed)
        shape = (settings.global_batch_size, settings.width)
        features = torch.randn(shape, generator=source)
        labels = torch.randint(0, settings.width, shape[:1], generator=source)
        own = slice(rank.rank * settings.batch_size, (rank.rank + 1) * settings.batch_size)
        return features[own].to(rank.device), labels[own].to(rank.device)


def _predict_all_reduce(rank: Rank[ReplicaSettings]) -> None:
    """Fit α and β to bare all_reduces, none of which is as large as the gradients."""
    whole = rank.settings.gradient_bytes
    sizes = [whole // 16, whole // 4, whole // 2]
    payloads = [torch.zeros(size // FLOAT_BYTES, device=rank.device) for size in sizes]
    calls = [partial(dist.all_reduce, payload) for payload in payloads]
    with rank.phase("all_reduce", computes=False):
        turns = [[seconds_alone(rank, call) for call in calls] for _ in range(NUM_TURNS)]
    settled = [fit(sizes, turn) for turn in turns[1:]]
    rank.measure_seconds("all_reduce", [line.seconds(whole) for line in settled])
    rank.measure_seconds("all_reduce_alpha", [line.alpha for line in settled])


QUESTION = (
    "How much faster is a step on more ranks, and from which number on do more ranks not pay?"
)
NUM_SETTLING_STEPS = 3  # the recorder leaves out as many
NUM_TURNS = 6  # of the bare all_reduces, the first of which settles
MEGABIT = 1_000_000
NUM_SAMPLES = 800


class Settings(StackSettings):
    """A stack of equal layers and a batch, dealt out to the ranks."""

    width: Count = 320
    num_layers: Count = 4
    global_batch_size: Count = NUM_SAMPLES
    num_steps: Count = 8
    learning_rate: Factor = 0.1

    @property
    def batch_size(self) -> int:
        """Samples of one rank."""
        return self.global_batch_size // self.world_size

    def closed_forms(self) -> dict[str, Setting]:
        """Samples of one rank."""
        return {"batch_size": self.batch_size}

    def check(self) -> None:
        """Refuse a batch that the ranks cannot share equally, and steps that only settle."""
        self.divides(("global_batch_size", "world_size"))
        if self.num_steps <= NUM_SETTLING_STEPS:
            raise ValueError(f"num_steps must be above {NUM_SETTLING_STEPS}, which only settle")


class ReplicaSettings(Settings):
    """Of several ranks, which average their gradients."""

    @property
    def gradient_bytes(self) -> int:
        """Of the whole model."""
        return FLOAT_BYTES * mlp_parameters(self.widths)

    def closed_forms(self) -> dict[str, Setting]:
        """The gradients of the whole model too."""
        return {**super().closed_forms(), "gradient_bytes": self.gradient_bytes}


class LinkedSettings(ReplicaSettings):
    """Of ranks with a link of their own each."""

    link_bits_per_second: Count = 200 * MEGABIT

    def closed_forms(self) -> dict[str, Setting]:
        """What a ring all_reduce of the gradients takes on the link at least, too."""
        sent_bytes = ring_bytes(self.gradient_bytes, self.world_size)
        seconds = 8 * sent_bytes / self.link_bits_per_second
        return {**super().closed_forms(), "transfer_seconds": seconds}


def _shared(world_size: int, samples: int = NUM_SAMPLES) -> RunPlan:
    return RunPlan("ddp", world_size, ReplicaSettings(global_batch_size=samples), passes=("timed",))


def _linked(world_size: int, megabits: int, samples: int = NUM_SAMPLES, **more: Any) -> RunPlan:
    settings = LinkedSettings(global_batch_size=samples, link_bits_per_second=megabits * MEGABIT)
    return RunPlan(
        "ddp", world_size, settings, passes=("timed",), only_on_cpu=True, own_network=True, **more
    )


RUNS = {
    "one": RunPlan("single", 1, Settings(), passes=("timed",)),
    "strong_2": _shared(2),
    "strong_4": _shared(4),
    "weak_2": _shared(2, 2 * NUM_SAMPLES),
    "weak_4": _shared(4, 4 * NUM_SAMPLES),
    "link_fast": _linked(2, 1600),
    "link_slow": _linked(2, 200),
    **{f"link_{m}": _linked(2, m, full=True) for m in (100, 400, 800)},
    "link_weak": _linked(2, 200, 2 * NUM_SAMPLES, full=True),
    "link_four": _linked(4, 200, full=True),
}
