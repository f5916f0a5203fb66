"""Trains under DDP with a loader of its own, and saves every step: saving.py folder steps."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

folder, steps = Path(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo")
torch.manual_seed(0)
samples = TensorDataset(torch.randn(4 * steps * dist.get_world_size(), 8))
loader = DataLoader(samples, 4, sampler=DistributedSampler(samples), num_workers=1)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8)))
optimizer = torch.optim.AdamW(model.parameters())
for step, (x,) in enumerate(loader):
    optimizer.zero_grad()
    (model(x) - x).square().mean().backward()
    optimizer.step()
    if dist.get_rank() == 0:
        part = folder / f"{step}.part"
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, part)
        part.rename(folder / f"{step}.pt")
    dist.barrier()
if dist.get_rank() == 0:
    (folder / "done").touch()
dist.destroy_process_group()
