"""What leaves in a backward pass: a communication hook that looks at DDP's buckets.

In: a replica under DDP. Out: a prediction step with the buckets of the last step, in order.
"""

# No `from __future__ import annotations`: DDP reads the annotations of its communication hook.
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.buckets import Settings
from runners.ranks.rank import Rank
from runners.traces.records import Setting


class Seen:
    """The buckets of one backward pass, and the gradients that were finished before each left."""

    def __init__(self, replica: DistributedDataParallel) -> None:
        """Count gradients as backward finishes them, and look at each bucket that leaves."""
        self._num_finished = 0
        self._bytes: list[int] = []
        self._num_gradients: list[int] = []
        self._finished_before: list[int] = []
        self._parameters: list[str] = []
        self._names = {id(p): name for name, p in replica.module.named_parameters()}
        for parameter in replica.module.parameters():
            parameter.register_hook(self._finished)
        replica.register_comm_hook(None, self._leaves)

    def _finished(self, _: Tensor) -> None:
        self._num_finished += 1

    def _leaves(self, group: dist.ProcessGroup, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        self._bytes.append(bucket.buffer().nbytes)
        self._num_gradients.append(len(bucket.parameters()))
        self._finished_before.append(self._num_finished)
        self._parameters.append(self._names[id(bucket.parameters()[0])])
        return allreduce_hook(group, bucket)

    def begin_again(self) -> None:
        """Forget the last step."""
        self._num_finished = 0
        for column in (self._bytes, self._num_gradients, self._finished_before, self._parameters):
            column.clear()

    def keep(self, rank: Rank[Settings], features: Tensor) -> None:
        """Show what the last step sent."""
        facts: dict[str, Setting] = {
            "bytes": self._bytes,
            "num_gradients": self._num_gradients,
            "num_finished_before": self._finished_before,
            "first_parameters": self._parameters,
        }
        with rank.predict("buckets", "send buckets while backward runs", features, facts) as out:
            out(features)
