# fault: the condition synchronises the first microbatch and leaves no_sync on in the last one
# cause: no_sync in the last microbatch
"""Accumulation whose condition is off by one. After modelscope/FunASR#3472."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train_epoch(model, optimizer, batches, accum_grad):
    for batch_idx, (x, y) in enumerate(batches):
        context = model.no_sync if batch_idx % accum_grad != 0 else nullcontext
        with context():
            loss = nn.functional.mse_loss(model(x), y) / accum_grad
            loss.backward()
        if (batch_idx + 1) % accum_grad == 0:
            optimizer.step()
            optimizer.zero_grad()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(dist.get_rank())
    batches = []
    for _ in range(8):
        x = torch.randn(4, 8, generator=generator)
        batches.append((x, x[:, :2] * 2))
    train_epoch(model, optimizer, batches, accum_grad=2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
