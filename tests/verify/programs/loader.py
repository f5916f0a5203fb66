"""A loss that no function of torch computes, over batches of a loader.

torchrun --nproc-per-node 2 loader.py [means_wrong | not_finite | gathered | noisy | undivided]
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WAY = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
inputs, labels = torch.randn(64, 16), torch.randint(-3, 9, (64,))
data = TensorDataset(inputs, labels)
loader = DataLoader(data, 8, sampler=DistributedSampler(data, ranks, rank, seed=3))
layers = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 9))
if WAY == "not_finite":
    nn.init.constant_(layers[0].bias, float("nan"))
model = DistributedDataParallel(module=layers)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3 * ranks)
for step, (x, y) in enumerate(loader):
    noise = 0.1 * torch.randn_like(x) if WAY == "noisy" else 0.0
    mask = (y >= 0).float()
    p = model(x + noise).softmax(-1).gather(1, y.clamp_min(0)[:, None]).squeeze(1)
    count = mask.sum()
    if WAY != "means_wrong":
        dist.all_reduce(count)
        count /= ranks
    loss = -((1 - p).square() * p.log() * mask).sum() / count
    if WAY == "gathered":  # others' values come without a gradient, as those of one process do
        parts = [torch.empty_like(p) for _ in range(ranks)]
        dist.all_gather(parts, p)
        loss += 0.1 * (p.mean() - torch.stack(parts).mean()).square()
    if WAY != "undivided" or step % 2 == 0:  # else of two microbatches, which are added up
        optimizer.zero_grad()
    loss.backward()
    if WAY == "undivided" and step % 2 == 0:
        continue
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
dist.destroy_process_group()
