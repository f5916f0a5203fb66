"""Right: DDP looks for parameters that a step leaves out.

torchrun --nproc-per-node 2 unused_right.py
"""

import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class TwoHeads(nn.Module):
    """A body and two heads; only the first head is used."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.first, self.second = (nn.Linear(20, 20) for _ in range(3))

    def forward(self, samples: Tensor) -> Tensor:
        """The output of the first head."""
        return self.first(self.body(samples))


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(TwoHeads(), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(10, 20)).square().mean().backward()
    optimizer.step()
    if dist.get_rank() == 0:
        print(f"step {step} done", flush=True)
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
