"""When ranks agree, in each step, now and then, late, at the end, or never.

In `averaging`, four ranks train the classifier of `ddp` and average their parameters every so many
steps; with Adam, whose moments do not follow a gradient in proportion, DDP is measured beside it.
In `synchronization`, two ranks train one with plain SGD; beside them one device, how far replicas
drift, and the largest learning rate that a gradient of each age allows on a parabola.

    python -m runners run averaging
    python -m runners run synchronization
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from proofbook.runners.api import Count, CountOrZero, Declaration, Factor, RunSettings, closed_form
from proofbook.runners.closed_forms.shape import mlp_parameters
from proofbook.runners.closed_forms.training_settings import (
    FourClassSettings,
    SmallClassifierSettings,
)
from proofbook.runners.training import steps
from proofbook.runners.training.networks import average, copy_row, flat, flat_gradient, gradients_of
from proofbook.runners.training.rank import Rank
from proofbook.runners.training.teacher import Samples


def trained(rank: Rank[AveragingSettings]) -> None:
    """Build and train an MLP on a shard; average parameters every few steps, or gradients."""
    settings = rank.settings
    lesson = steps.scaled_lesson(rank)
    samples, model = steps.shard_of(rank, lesson.training), steps.mlp_for(rank)
    by_gradients = settings.averages == "gradients"
    replica = steps.replica_of(rank, model) if by_gradients else model
    optimizer = steps.optimizer_for(rank, model)
    last = settings.num_epochs * (len(samples.labels) // settings.batch_size)
    for epoch in steps.epochs(rank, replica, optimizer, lesson.validation):
        for batch in epoch.batches(samples, settings.batch_size):
            steps.train_batch(replica, optimizer, batch, epoch)
            done = rank.step_index + 1
            if by_gradients or done % settings.steps_between:
                continue
            if done < last:
                average(list(model.parameters()))
            else:
                _average_and_compare(rank, model, lesson.validation)


def _average_and_compare(
    rank: Rank[AveragingSettings], model: nn.Module, validation: Samples
) -> None:
    """Average the replicas, and look at each of them before and after."""
    losses = steps.of_all_ranks(rank, steps.validate(model, validation)[1])
    num_distinct = steps.num_distinct(rank, model.parameters())
    before = flat(model)
    with rank.predict("average", "average the replicas' parameters", before) as out:
        after = average(list(model.parameters()))
        apart = ((before - after).norm() / after.norm()).item()
        distances = [*steps.of_all_ranks(rank, apart)]
        out(after, validation_losses=[*losses], num_distinct=num_distinct, distances=distances)
        _, loss, accuracy = steps.validate(model, validation)
        out(after, validation_loss=loss, validation_accuracy=accuracy)


class AveragingSettings(SmallClassifierSettings):
    """A small classifier on a shard for each rank, and what the ranks average, how often."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    averages: Literal["parameters", "gradients"] = "parameters"
    steps_between: Count = 1


averaged = partial(Declaration, "train", 4, passes=("timed",), label="averaged")
with_adam = partial(AveragingSettings, optimizer="adam", learning_rate=0.01, num_epochs=1)


class _Averaging:
    QUESTION = (
        "Can replicas average their parameters instead of their gradients, and less "
        "often than every step?"
    )
    STRATEGIES = {"train": trained}
    RUNS = {
        "each_step": averaged(AveragingSettings()),
        "ten_steps": averaged(AveragingSettings(steps_between=10)),
        "each_epoch": averaged(AveragingSettings(steps_between=100)),
        "at_end": averaged(AveragingSettings(steps_between=500)),
        "gradients_adam": averaged(with_adam(averages="gradients"), label="ddp"),
        "each_step_adam": averaged(with_adam()),
    }
    TRIED_WITH = {
        "*": {"num_samples": 1000, "num_epochs": 4},  # as `ddp`, with which a law compares
        "each_epoch": {"steps_between": 10},
        "at_end": {"steps_between": 30},
    }


def synchronous(rank: Rank[SgdSettings]) -> None:
    """Build and train a replica by DDP: the mean gradient in every step; record what was seen."""
    own = Replica(rank)
    for _ in own.steps(steps.replica_of(rank, own.model)):
        own.optimizer.step()
        own.communicated_bytes += flat_gradient(own.model).nbytes
    own.report()


def local(rank: Rank[LocalSettings]) -> None:
    """Build and train a replica by local SGD: average parameters every few steps, and report."""
    own = Replica(rank)
    for index in own.steps(own.model):
        own.optimizer.step()
        if (index + 1) % rank.settings.steps_between == 0:
            before = flat(own.model)
            mean = average(list(own.model.parameters()))
            own.communicated_bytes += mean.nbytes
            own.distances.append(float(torch.linalg.norm(before - mean)))
    own.report()


def stale(rank: Rank[StaleSettings]) -> None:
    """Build and train a replica on mean gradients by async all_reduce, applied `delay` steps late.

    What is still under way when the samples end is applied then: every gradient counts once.
    """
    own = Replica(rank)
    under_way: list[tuple[dist.Work, Tensor]] = []

    def apply_oldest() -> None:
        work, mean = under_way.pop(0)
        work.wait()
        copy_row(mean / rank.world_size, gradients_of(own.model))
        own.optimizer.step()

    for _ in own.steps(own.model):
        mean = flat_gradient(own.model)
        under_way.append((dist.all_reduce(mean, async_op=True), mean))
        own.communicated_bytes += mean.nbytes
        if len(under_way) > rank.settings.delay:
            apply_oldest()
    while under_way:
        apply_oldest()
    own.report()


def alone(rank: Rank[SgdSettings]) -> None:
    """Replicas that start equal and never communicate; or, on one device, the oracle."""
    own = Replica(rank)
    for _ in own.steps(own.model):
        own.optimizer.step()
    own.report()


class Replica:
    """This rank's model, how it updates, and what is seen of the replicas on the way."""

    def __init__(self, rank: Rank[SgdSettings]) -> None:
        self.rank = rank
        self.batches, self.validation = _samples(rank)
        self.model = steps.mlp_for(rank)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rank.settings.learning_rate)
        self.distances: list[float] = []  # from the mean of all, just before each average
        self.communicated_bytes = 0  # of the tensors that it passed to collectives to train
        self._norms: list[float] = []
        self._losses: list[float] = []

    def steps(self, module: nn.Module) -> Iterator[int]:
        """Yield each step's index after backward, for the caller to update; note loss and norm."""
        rank = self.rank
        rank.watch(module, self.optimizer)
        for index in rank.steps(rank.settings.num_steps):
            batch = self.batches[index % len(self.batches)]
            loss = cross_entropy(module(batch.features), batch.labels)
            loss.backward()
            self._norms.append(float(torch.linalg.norm(flat_gradient(self.model))))
            with rank.phase("optimizer"):  # with the collectives that an update may need
                yield index
                self.optimizer.zero_grad(set_to_none=False)
            self._losses.append(loss.item())
            rank.count_samples(len(batch.labels))

    def report(self) -> None:
        """Record losses, validation, communicated bytes, norms, distances, distinct replicas."""
        rank = self.rank
        graded = steps.validate(self.model, self.validation)
        for losses in zip(*steps.of_all_ranks(rank, self._losses), strict=True):
            rank.step_loss(sum(losses) / rank.world_size)
        rank.epoch(
            1,
            loss=sum(self._losses) / len(self._losses),
            num_samples=rank.outcome.num_samples or 0,
            validation=graded,
            parameters=self.model.parameters(),
        )
        rank.measure("communicated_bytes", self.communicated_bytes, unit="bytes")
        rank.measure("largest_gradient_norm", max(steps.of_all_ranks(rank, max(self._norms))))
        if self.distances:
            rank.measure("largest_distance", max(steps.of_all_ranks(rank, max(self.distances))))
        rank.measure("num_distinct", steps.num_distinct(rank, self.model.parameters()))
        taken = rank.outcome.step_seconds
        for start in range(0, rank.settings.num_steps, NUM_BLOCK_STEPS):
            rank.measure_seconds("block", [sum(taken[start : start + NUM_BLOCK_STEPS])])


def _samples(rank: Rank[SgdSettings]) -> tuple[list[Samples], Samples]:
    """The batches of this rank's shard, or on one device of all, and the validation samples."""
    settings, lesson = rank.settings, steps.scaled_lesson(rank)
    samples = lesson.training
    if settings.order == "by_class":  # shards hold different classes, shuffled
        source = torch.Generator().manual_seed(rank.seed)
        by_class = samples.labels.argsort(stable=True).chunk(rank.world_size)
        mixed = [shard[torch.randperm(len(shard), generator=source)] for shard in by_class]
        samples = samples.take(torch.cat(mixed))
    shards = torch.arange(settings.num_samples).view(settings.shards, -1)
    own = shards[rank.rank : rank.rank + 1] if rank.world_size > 1 else shards
    indices = own.split(settings.batch_size, dim=1)  # each of all shards: [shards, batch]
    return [samples.take(index.reshape(-1)) for index in indices], lesson.validation


def parabola(rank: Rank[ParabolaSettings]) -> None:
    """Record, by bisection, the largest rate at which SGD goes down x²/2, for each gradient age."""
    settings = rank.settings
    largest_rates = []
    for delay in settings.delays:
        low, high = 0.0, 4.0
        for _ in range(settings.num_halvings):
            rate = (low + high) / 2
            low, high = (rate, high) if _goes_down(rate, delay, settings.num_steps) else (low, rate)
        largest_rates.append((low + high) / 2)
    rank.measure("largest_rates", largest_rates)


def _goes_down(rate: float, delay: int, num_steps: int) -> bool:
    """Whether SGD with gradients `delay` steps old comes nearer to the bottom of x²/2."""
    path = [1.0] * (delay + 1)
    for _ in range(num_steps):
        path.append(path[-1] - rate * path[-1 - delay])
        if abs(path[-1]) > 1e6:
            return False
    sizes, quarter = [abs(at) for at in path[-num_steps:]], num_steps // 4
    early, late = max(sizes[quarter : 2 * quarter]), max(sizes[3 * quarter :])
    return late < early or late == 0.0


NUM_BLOCK_STEPS = 16  # timed together, so that the step that averages is in the time


class SgdSettings(FourClassSettings):
    """A small classifier that the ranks train on a shard each."""

    num_samples: Count = 6400
    batch_size: Count = 50
    num_steps: Count = 128
    learning_rate: Factor = 0.2
    order: Literal["shuffled", "by_class"] = "shuffled"
    equal_parts = (("num_samples", "shards"),)

    @property
    def shards(self) -> int:
        """Into how many shards the samples are cut; one device takes what two ranks would."""
        return max(2, self.world_size)

    @closed_form
    def model_bytes(self) -> int:
        """The size of all parameters."""
        return (8 if self.dtype == "float64" else 4) * mlp_parameters(self.widths)


class LocalSettings(SgdSettings):
    """Ranks train alone for some steps before their parameters are averaged."""

    steps_between: Count


class StaleSettings(SgdSettings):
    """Mean gradients are applied some steps late."""

    delay: CountOrZero


class ParabolaSettings(RunSettings):
    """Gradients of each age on a parabola."""

    delays: tuple[CountOrZero, ...] = (0, 1, 4, 16)
    num_steps: Count = 4000
    num_halvings: Count = 14

    @closed_form
    def largest_rates(self) -> list[float]:
        """The largest stable rate for each delay: 2·sin(π / (2·(2·delay + 1)))."""
        return [2 * math.sin(math.pi / (2 * (2 * delay + 1))) for delay in self.delays]


timed = partial(Declaration, passes=("timed",), keeps_steps=True)
LOCAL = {n: LocalSettings(steps_between=n) for n in (1, 8, 32)}
STALE = {n: StaleSettings(delay=n) for n in (0, 4, 16)}


class _Synchronization:
    QUESTION = "How often must replicas synchronize, and how stale may their gradients be?"
    STRATEGIES = {"single": alone, "never": alone}
    RUNS = {
        "single": timed("single", 1, SgdSettings()),
        "synchronous": timed("synchronous", 2, SgdSettings()),
        **{f"local_{n}": timed("local", 2, local) for n, local in LOCAL.items()},
        "at_end": timed("local", 2, LocalSettings(steps_between=128)),
        "never": timed("never", 2, SgdSettings()),
        **{f"stale_{n}": timed("stale", 2, late) for n, late in STALE.items()},
        "synchronous_by_class": timed("synchronous", 2, SgdSettings(order="by_class")),
        "local_32_by_class": timed("local", 2, LocalSettings(steps_between=32, order="by_class")),
        "parabola": timed("parabola", 1, ParabolaSettings()),
    }


EXPERIMENTS = {"averaging": _Averaging, "synchronization": _Synchronization}
