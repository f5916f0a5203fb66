"""Wrong: under sequence parallelism, the gradients of normalizations are summed twice.

torchrun --nproc-per-node 2 norms_twice.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

TOKENS, SAMPLES, LENGTH, WIDTH = 32, 4, 8, 16


class Block(nn.Module):
    """A normalized MLP around which the input is added."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())


dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model = nn.Sequential(
    nn.Embedding(TOKENS, WIDTH), Block(), Block(), nn.Linear(WIDTH, TOKENS, bias=False)
)
plan = {
    "0": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "[12].norm": SequenceParallel(),  # on each rank, of a part of the sequence
    "[12].up": ColwiseParallel(input_layouts=Shard(1)),
    "[12].down": RowwiseParallel(output_layouts=Shard(1)),
    "3": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
}
parallelize_module(model, mesh, plan)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(TOKENS, (SAMPLES, LENGTH + 1), generator=generator)
    optimizer.zero_grad()
    logits = model(tokens[:, :-1])
    nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):  # SequenceParallel has summed these already
            for one in module.parameters():
                dist.all_reduce(one.grad.to_local())
    optimizer.step()
dist.destroy_process_group()
