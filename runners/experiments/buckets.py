"""How DDP packs gradients into buckets, and when it sends them: during backward, or after it.

Two ranks train a stack of equal layers under DDP. A communication hook looks at every bucket as it
leaves. The bucket's cap is changed from run to run; in `after_backward` nothing leaves before
backward has ended, and then everything at once.

    python -m runners run buckets
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, CountOrZero, Factor
from runners.plans.work import mlp_parameters
from runners.ranks.rank import Rank
from runners.traces.schema import Setting
from runners.training.networks import copy_row, flat_gradient, gradients_of
from runners.training.settings import StackSettings
from runners.training.steps import random_samples, stack_for


def train(rank: Rank[Settings]) -> None:
    """Train on one batch; after the last step show which buckets it sent."""
    settings = rank.settings
    stack = stack_for(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(stack, bucket_cap_mb=settings.bucket_cap_mib or None)
    optimizer = torch.optim.SGD(stack.parameters(), lr=settings.learning_rate)
    features, labels = random_samples(rank, settings.batch_size)
    rank.watch(replica, optimizer)
    seen = Seen()
    if settings.overlaps:
        seen.listen(replica)
    for _ in rank.steps(settings.num_steps):
        seen.clear()
        with nullcontext() if settings.overlaps else replica.no_sync():
            loss = cross_entropy(replica(features), labels)
            loss.backward()
        if not settings.overlaps:
            with rank.phase("communicate", computes=False):
                _communicate(replica)
        optimizer.step()
        optimizer.zero_grad()
        last_loss = loss.item()
        del loss  # before the next forward pass
    rank.epoch(1, loss=last_loss, num_samples=settings.batch_size, parameters=stack.parameters())
    if settings.overlaps:
        facts = seen.facts()
        with rank.predict("buckets", "send buckets while backward runs", features, facts) as out:
            out(features)


def _communicate(model: nn.Module) -> None:
    """What DDP does, without the overlap: all gradients in one message, once backward is over."""
    whole = flat_gradient(model)
    dist.all_reduce(whole)
    whole /= dist.get_world_size()
    copy_row(whole, gradients_of(model))


@dataclass
class Seen:
    """What left in one backward pass: buckets in order, and gradients finished before each."""

    num_finished: int = 0
    bytes: list[int] = field(default_factory=list)
    num_gradients: list[int] = field(default_factory=list)
    finished_before: list[int] = field(default_factory=list)
    layers: list[str] = field(default_factory=list)

    def listen(self, replica: DistributedDataParallel) -> None:
        """Count gradients as backward finishes them, and look at each bucket that leaves."""
        names = {id(p): name for name, p in replica.module.named_parameters()}

        def finished(_: Tensor) -> None:
            self.num_finished += 1

        for parameter in replica.module.parameters():
            parameter.register_hook(finished)

        def leave(group: dist.ProcessGroup, bucket: GradBucket) -> Future[Tensor]:
            self.bytes.append(bucket.buffer().nbytes)
            self.num_gradients.append(len(bucket.parameters()))
            self.finished_before.append(self.num_finished)
            self.layers.append(names[id(bucket.parameters()[0])])
            return allreduce_hook(group, bucket)

        # A hook's annotations, of which there may be none, must not be texts as in this file.
        hook = lambda group, bucket: leave(group, bucket)  # noqa: E731, PLW0108
        replica.register_comm_hook(None, hook)

    def clear(self) -> None:
        """Begin a step."""
        self.num_finished = 0
        for column in (self.bytes, self.num_gradients, self.finished_before, self.layers):
            column.clear()

    def facts(self) -> dict[str, Setting]:
        """Of the last step, as a trace keeps them."""
        return {
            "bytes": [*self.bytes],
            "num_gradients": [*self.num_gradients],
            "num_finished_before": [*self.finished_before],
            "first_parameters": [*self.layers],
        }


QUESTION = "Does a gradient wait for the end of backward before it is sent?"
BYTES_PER_VALUE = 4


class Settings(StackSettings):
    """A stack of equal layers under DDP, and how its gradients travel."""

    num_layers: Count = 12
    width: Count = 512
    batch_size: Count = 64
    num_steps: Count = 30
    bucket_cap_mib: CountOrZero = 0  # zero: DDP's default
    learning_rate: Factor = 0.1
    overlaps: bool = True

    def closed_forms(self) -> dict[str, Setting]:
        """Gradients, of a weight and a bias in each layer, and the bytes of one layer's."""
        return {
            "num_gradients": 2 * self.num_layers,
            "bytes_per_value": BYTES_PER_VALUE,
            "layer_bytes": BYTES_PER_VALUE * mlp_parameters([self.width] * 2),
        }


def _plan(**settings: Any) -> RunPlan:
    return RunPlan("train", 2, Settings(**settings), label="ddp")


RUNS = {
    "as_it_comes": _plan(),
    "small": _plan(bucket_cap_mib=1),
    "middling": _plan(bucket_cap_mib=4),
    "one_bucket": _plan(bucket_cap_mib=1000),
    "after_backward": _plan(overlaps=False),
}
TRIED_WITH = {"*": {"num_steps": 4}}
