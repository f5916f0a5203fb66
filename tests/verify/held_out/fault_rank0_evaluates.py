# fault: rank 0 alone all-reduces the validation loss; the other ranks go on to the next update
# cause: collective under "if rank == 0"
"""Validation on the first rank that calls a collective. After pytorch/pytorch#54059,
horovod/horovod#159."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def evaluate(model, x):
    model.eval()
    with torch.no_grad():
        loss = nn.functional.mse_loss(model.module(x), x)
    dist.all_reduce(loss, op=dist.ReduceOp.SUM)
    model.train()
    return loss / dist.get_world_size()


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(4):
        x = torch.randn(8, 4, generator=generator)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x).backward()
        optimizer.step()
        if step == 1 and dist.get_rank() == 0:
            evaluate(model, x)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
