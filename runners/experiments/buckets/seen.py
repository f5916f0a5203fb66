"""What a communication hook sees of DDP's buckets as they leave, without changing them."""

# No `from __future__ import annotations`: DDP reads the annotations of its communication hook.
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from runners.traces.schema import Setting


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

        def leave(group: dist.ProcessGroup, bucket: GradBucket) -> torch.futures.Future[Tensor]:
            self.bytes.append(bucket.buffer().nbytes)
            self.num_gradients.append(len(bucket.parameters()))
            self.finished_before.append(self.num_finished)
            self.layers.append(names[id(bucket.parameters()[0])])
            return allreduce_hook(group, bucket)

        replica.register_comm_hook(None, leave)

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
