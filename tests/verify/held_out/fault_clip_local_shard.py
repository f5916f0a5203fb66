# fault: every rank clips by the norm of its own shard, so the ranks scale by different factors
# cause: clipping by the norm of a shard
"""Clips local tensors of FSDP2. After PrimeIntellect-ai/OpenDiloco#6, pytorch/pytorch#72548."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def clip_grad_norm_(parameters, max_norm):
    gradients = [p.grad.to_local() for p in parameters if p.grad is not None]
    total = torch.linalg.vector_norm(
        torch.stack([torch.linalg.vector_norm(g) for g in gradients if g.numel()])
    )
    factor = torch.clamp(max_norm / (total + 1e-6), max=1.0)
    for gradient in gradients:
        gradient.mul_(factor)
    return total


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 1)
    )
    for i in (0, 2, 4):
        fully_shard(model[i])
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(4):
        x = torch.randn(16, 8, generator=generator)
        loss = nn.functional.mse_loss(model(x), 10 * x.prod(1, keepdim=True))
        loss.backward()
        clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
