# fault: each rank seeds its sampler by its number, so ranks take samples that others take too
# cause: samples shared by ranks
"""DistributedSampler with a seed for each rank. After NVlabs/LongLive#71."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
x = torch.randn(20, 6)
dataset = TensorDataset(x, x.square().sum(1, keepdim=True))
sampler = DistributedSampler(dataset, seed=1 + dist.get_rank(), drop_last=True)
model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for xb, yb in DataLoader(dataset, batch_size=5, sampler=sampler):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(xb), yb).backward()
        optimizer.step()
dist.destroy_process_group()
