"""A buffer that a second forward pass overwrites before the backward pass of the first.

torchrun --nproc-per-node 2 buffers_between_forwards.py
"""

import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class Scaled(nn.Module):
    """A layer whose outputs are divided by a running mean of their size, a buffer."""

    def __init__(self, is_copied: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.is_copied = is_copied
        self.register_buffer("scale", torch.ones(()))

    def forward(self, samples: Tensor) -> Tensor:
        """The scaled outputs; backward needs the scale by which they were divided."""
        outputs = self.layer(samples)
        self.scale = 0.5 * self.scale + 0.5 * outputs.detach().abs().mean()
        return outputs / (self.scale.clone() if self.is_copied else self.scale)


def gradient(is_copied: bool) -> Tensor:
    """The averaged gradient of a loss that takes two forward passes."""
    torch.manual_seed(0)
    replica = DistributedDataParallel(Scaled(is_copied))
    generator = torch.Generator().manual_seed(1 + rank)
    first, second = (1 + rank) * torch.randn(2, 16, 8, generator=generator)
    (replica(first) - replica(second)).square().mean().backward()
    return replica.module.layer.weight.grad


dist.init_process_group("gloo")
rank = dist.get_rank()
with_buffer, with_copy = gradient(is_copied=False), gradient(is_copied=True)
difference = ((with_buffer - with_copy).norm() / with_copy.norm()).item()
report = [{}] * dist.get_world_size()
dist.all_gather_object(report, {"difference": difference})
if rank == 0:
    print("two forward passes and one backward pass completed")
    print(f"gradient with the buffer itself: off by {difference:.1%} of the one with a copy")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
