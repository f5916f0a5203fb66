"""How DDP packs gradients into buckets, and when it sends them: during backward, or after it.

Two ranks train a stack of equal layers under DDP. A communication hook looks at every bucket as it
leaves. The bucket's cap is changed from run to run; in `after_backward` nothing leaves before
backward has ended, and then everything at once.

    python -m runners run buckets
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from proofbook.runners.api import Count, CountOrZero, Declaration, Factor, Setting
from proofbook.runners.closed_forms.shape import FLOAT_BYTES, mlp_parameters
from proofbook.runners.closed_forms.training_settings import StackSettings
from proofbook.runners.training.networks import average, gradients_of
from proofbook.runners.training.rank import Rank
from proofbook.runners.training.steps import random_samples, replica_of, stack_for


def train(rank: Rank[Settings]) -> None:
    """Build and train a DDP stack; record the last step's buckets, or reduce after backward."""
    settings = rank.settings
    stack = stack_for(rank)
    replica = replica_of(
        rank,
        stack,
        bucket_cap_mb=settings.bucket_cap_mib or None,
        find_unused_parameters=settings.finds_unused,
    )
    optimizer = torch.optim.SGD(stack.parameters(), lr=settings.learning_rate)
    features, labels = random_samples(rank, settings.batch_size)
    rank.watch(replica, optimizer)
    left = leaving(replica) if settings.overlaps else {}
    for _ in rank.steps(settings.num_steps):
        with nullcontext() if settings.overlaps else replica.no_sync():
            loss = cross_entropy(replica(features), labels)
            loss.backward()
        if not settings.overlaps:
            with rank.phase("communicate", computes=False):
                average(gradients_of(stack))
        optimizer.step()
        optimizer.zero_grad()
        last_loss = loss.item()
        del loss  # before the next forward pass
    rank.epoch(1, loss=last_loss, num_samples=settings.batch_size, parameters=stack.parameters())
    if settings.overlaps:
        with rank.predict("buckets", "send buckets while backward runs", features) as out:
            out(features, **left)


def leaving(replica: DistributedDataParallel) -> dict[str, list[int]]:
    """Lists by name, which hooks on the replica fill: the last backward's buckets, and each step's.

    Of a bucket, in order: its bytes, its number of gradients, and how many gradients were finished
    before it left. Of a step, `num_by_step`: how many buckets left.
    """
    left: dict[str, list[int]] = {"bytes": [], "num_gradients": [], "num_finished_before": []}
    num_by_step: list[int] = []
    finished: list[torch.Size] = []  # gradients of this backward pass

    def leave(group: dist.ProcessGroup, bucket: GradBucket) -> Future[Tensor]:
        if bucket.index() == 0:  # another backward pass
            for column in left.values():
                column.clear()
            num_by_step.append(0)
        num_by_step[-1] += 1
        left["bytes"].append(bucket.buffer().nbytes)
        left["num_gradients"].append(len(bucket.parameters()))
        left["num_finished_before"].append(len(finished))
        if bucket.is_last():
            finished.clear()
        return allreduce_hook(group, bucket)

    for parameter in replica.module.parameters():
        parameter.register_hook(lambda gradient: finished.append(gradient.shape))
    # A hook's annotations, of which there may be none, must not be texts as in this file.
    replica.register_comm_hook(None, lambda group, bucket: leave(group, bucket))  # noqa: PLW0108
    return left | {"num_by_step": num_by_step}


QUESTION = "Does a gradient wait for the end of backward before it is sent?"


class Settings(StackSettings):
    """A stack of equal layers under DDP, and how its gradients travel."""

    num_layers: Count = 12
    width: Count = 512
    batch_size: Count = 64
    num_steps: Count = 30
    bucket_cap_mib: CountOrZero = 0  # zero: DDP's default
    learning_rate: Factor = 0.1
    overlaps: bool = True
    finds_unused: bool = False

    def closed_forms(self) -> dict[str, Setting]:
        """By name, of the settings: number of gradients; bytes of a value and of a layer."""
        return {
            "num_gradients": 2 * self.num_layers,
            "bytes_per_value": FLOAT_BYTES,
            "layer_bytes": FLOAT_BYTES * mlp_parameters([self.width] * 2),
        }


ddp = partial(Declaration, "train", 2, has_timeline=True, label="ddp")
RUNS = {
    "as_it_comes": ddp(Settings()),
    "small": ddp(Settings(bucket_cap_mib=1)),
    "middling": ddp(Settings(bucket_cap_mib=4)),
    "one_bucket": ddp(Settings(bucket_cap_mib=1000)),
    "finds_unused": ddp(Settings(bucket_cap_mib=1, finds_unused=True)),
    "after_backward": ddp(Settings(overlaps=False)),
}
TRIED_WITH = {"*": {"num_steps": 4}}
