"""When replicas agree: DDP, local SGD, gradients that are applied late, or never."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.synchronization import LocalSettings, Settings, StaleSettings
from runners.experiments.synchronization.parabola import parabola
from runners.experiments.synchronization.replica import Replica
from runners.ranks.rank import Rank
from runners.training.networks import flat


def synchronous(rank: Rank[Settings]) -> None:
    """DDP: the mean gradient in every step, before the next begins."""
    own = Replica(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(own.model)
    own.train(lambda _: own.optimizer.step(), replica)
    own.communicated_bytes = rank.settings.num_steps * flat(own.model).nbytes
    own.report()


def local(rank: Rank[LocalSettings]) -> None:
    """Local SGD: every rank alone for some steps, then the mean of the parameters."""
    own = Replica(rank)

    def update(index: int) -> None:
        own.optimizer.step()
        if (index + 1) % rank.settings.steps_between == 0:
            own.average()

    own.train(update)
    own.report()


def stale(rank: Rank[StaleSettings]) -> None:
    """The mean gradient travels while ranks go on, and is applied some steps later.

    What is still under way when the samples end is applied then: every gradient counts once.
    """
    own = Replica(rank)
    under_way: list[tuple[dist.Work, Tensor]] = []

    def apply_oldest() -> None:
        work, mean = under_way.pop(0)
        work.wait()
        own.apply(mean / rank.world_size)

    def update(_: int) -> None:
        mean = own.gradient()
        under_way.append((dist.all_reduce(mean, async_op=True), mean))
        own.communicated_bytes += mean.nbytes
        if len(under_way) > rank.settings.delay:
            apply_oldest()

    own.train(update)
    while under_way:
        apply_oldest()
    own.report()


def alone(rank: Rank[Settings]) -> None:
    """Replicas that start equal and never communicate; or, on one device, the oracle."""
    own = Replica(rank)
    own.train(lambda _: own.optimizer.step())
    own.report()


STRATEGIES = {
    "single": alone,
    "synchronous": synchronous,
    "local": local,
    "never": alone,
    "stale": stale,
    "parabola": parabola,
}
