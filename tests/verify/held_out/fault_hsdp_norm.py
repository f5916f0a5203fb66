# fault: the clipping norm is summed over replicas too, and is too large by the root of their number
# cause: replicas counted in the clipping norm
"""HSDP with a norm by hand, 4 ranks. After ByteDance-Seed/VeOmni#184."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def clip(parameters, max_norm):
    gradients = [p.grad.to_local() for p in parameters]
    total = sum(g.square().sum() for g in gradients)
    dist.all_reduce(total)
    factor = min(1.0, max_norm / (total.sqrt().item() + 1e-6))
    for g in gradients:
        g.mul_(factor)


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh(
        "cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("replicate", "shard")
    )
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model[2], mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(3):
        x = torch.randn(8, 8, generator=generator)
        loss = nn.functional.mse_loss(model(x), 3 * x)
        optimizer.zero_grad()
        loss.backward()
        clip(list(model.parameters()), 0.2)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
