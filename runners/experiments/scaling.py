"""Strong and weak scaling over ranks, and over links, beside what Amdahl and α–β predict.

Under strong scaling the same batch is dealt out to more ranks; under weak scaling each further rank
brings as many samples again. A step is predicted as compute / ranks + update + all_reduce: `one`
times the first two apart, and each run of several ranks fits t = α + β·bytes to bare all_reduces.

    python -m runners run scaling
"""

from __future__ import annotations

import time
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

from runners.closed_forms.training_settings import SharedBatchSettings
from runners.closed_forms.work import FLOAT_BYTES, mlp_parameters
from runners.core.declared.experiment import Declaration
from runners.core.declared.settings import NUM_SETTLING_STEPS, Count, Factor, Settled, closed_form
from runners.core.ranks.rank import Rank
from runners.training.steps import random_samples, replica_of, stack_for
from runners.training.transfers import fit, in_turns, sent


def single(rank: Rank[Settings]) -> None:
    """The whole batch on one device."""
    _train(rank, stack_for(rank))


def ddp(rank: Rank[ReplicaSettings]) -> None:
    """A part of the batch on each rank, gradients averaged; and the expected cost of averaging."""
    model = stack_for(rank)
    _predict_all_reduce(rank)
    replica = replica_of(rank, model)
    with sent(rank, sent_bytes=rank.settings.num_steps):
        _train(rank, replica)


def _train(rank: Rank[Settings], model: nn.Module) -> None:
    """Take steps; time apart what more ranks would share and what each does whole."""
    settings = rank.settings
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    # The batch is the same however many ranks share it.
    features, labels = random_samples(rank, settings.global_batch_size, rank.seed)
    own = slice(rank.rank * settings.batch_size, (rank.rank + 1) * settings.batch_size)
    features, labels = features[own], labels[own]
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


def _predict_all_reduce(rank: Rank[ReplicaSettings]) -> None:
    """Fit α and β to bare all_reduces, none of which is as large as the gradients."""
    whole = rank.settings.gradient_bytes
    sizes = [whole // 16, whole // 4, whole // 2]
    payloads = [torch.zeros(size // FLOAT_BYTES, device=rank.device) for size in sizes]
    calls = [partial(dist.all_reduce, payload) for payload in payloads]
    with rank.phase("all_reduce", computes=False):
        fits = [fit(sizes, turn) for turn in in_turns(rank, calls, NUM_TURNS)]
    rank.measure_seconds("all_reduce", [alpha + beta * whole for alpha, beta in fits])


QUESTION = (
    "How much faster is a step on more ranks, and from which number on do more ranks not pay?"
)
NUM_TURNS = 5  # of the bare all_reduces
MEGABIT = 1_000_000


class Settings(SharedBatchSettings):
    """A stack of equal layers and a batch, dealt out to the ranks."""

    width: Count = 320
    num_layers: Count = 4
    global_batch_size: Count = 800
    num_steps: Settled = 8
    learning_rate: Factor = 0.1


class ReplicaSettings(Settings):
    """Of several ranks, which average their gradients."""

    @closed_form
    def gradient_bytes(self) -> int:
        """Bytes of all gradients of the model."""
        return FLOAT_BYTES * mlp_parameters(self.widths)


class LinkedSettings(ReplicaSettings):
    """Of ranks with a link of their own each."""

    link_bits_per_second: Count = 200 * MEGABIT


timed = partial(Declaration, passes=("timed",))
linked = partial(timed, "ddp", only_on_cpu=True, own_network=True)
LINKS = {rate: LinkedSettings(link_bits_per_second=rate * MEGABIT) for rate in (100, 400, 800)}
RUNS = {
    "one": timed("single", 1, Settings()),
    "strong_2": timed("ddp", 2, ReplicaSettings()),
    "strong_4": timed("ddp", 4, ReplicaSettings()),
    "weak_2": timed("ddp", 2, ReplicaSettings(global_batch_size=1600)),
    "weak_4": timed("ddp", 4, ReplicaSettings(global_batch_size=3200)),
    "link_fast": linked(2, LinkedSettings(link_bits_per_second=1600 * MEGABIT)),
    "link_slow": linked(2, LinkedSettings()),
    **{f"link_{rate}": linked(2, settings, full=True) for rate, settings in LINKS.items()},
    "link_weak": linked(2, LinkedSettings(global_batch_size=1600), full=True),
    "link_four": linked(4, LinkedSettings(), full=True),
}
