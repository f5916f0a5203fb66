"""A tensor-parallel MLP with DTensor parameters and a hand-written row-wise layer.

Report: pytorch/torchtitan#4332
What is wrong: each rank adds `bias / self.mesh.size()` so that the sum holds the bias once;
autograd divides the gradient of the replicated bias as well.
Expected cause: the gradient of `down.bias` alone is 1/ranks of the reference.
Launch: torchrun --nproc-per-node 2 fault_bias_over_ranks.py
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module


class RowwiseLinear(nn.Linear):
    def shard(self, mesh):
        self.mesh = mesh
        self.weight = nn.Parameter(distribute_tensor(self.weight.data, mesh, [Shard(1)]))
        self.bias = nn.Parameter(distribute_tensor(self.bias.data, mesh, [Replicate()]))

    def forward(self, x):
        weight, bias = self.weight.to_local(), self.bias.to_local()
        out = F.linear(x, weight, bias / self.mesh.size())
        return DTensor.from_local(out, self.mesh, [Partial()]).full_tensor()


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 32)
        self.down = RowwiseLinear(32, 4)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


def batch(step):
    g = torch.Generator().manual_seed(step)
    return torch.randn(16, 8, generator=g), torch.randn(16, 4, generator=g)


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = MLP()
    parallelize_module(model, mesh, {"up": ColwiseParallel()})
    model.down.shard(mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(4):
        inputs, targets = batch(step)
        loss = F.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
