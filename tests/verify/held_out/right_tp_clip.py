# right: tensor parallelism by parallelize_module, plain replicated parameters, clipping by torch
"""Column- and row-wise linear layers; every rank trains on the same samples."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = (
            nn.Linear(16, 64, bias=False),
            nn.Linear(16, 64, bias=False),
            nn.Linear(64, 16, bias=False),
        )

    def forward(self, x):
        return x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))


dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model = nn.Sequential(MLP(), MLP())
for block in model:
    parallelize_module(
        block, mesh, {"gate": ColwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}
    )
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
generator = torch.Generator().manual_seed(9)
for _ in range(4):
    x = torch.randn(8, 16, generator=generator)
    loss = nn.functional.mse_loss(model(x), x.roll(1, 1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
dist.destroy_process_group()
