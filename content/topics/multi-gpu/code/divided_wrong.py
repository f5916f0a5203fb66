"""Wrong: the update is too small. torchrun --nproc-per-node 2 divided_wrong.py"""

import time

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Linear(10, 1)
batch, targets = torch.randn(100, 10), torch.randn(100, 1)
start, end = (0, 80) if rank == 0 else (80, 100)
own_samples, own_targets = batch[start:end], targets[start:end]

loss = nn.functional.mse_loss(model(own_samples), own_targets)
loss = loss * len(own_samples) / len(batch)
loss.backward()
combined = model.weight.grad.clone()
dist.all_reduce(combined)
combined = combined / world_size

if rank == 0:
    whole = torch.autograd.grad(nn.functional.mse_loss(model(batch), targets), model.weight)[0]
    print(f"parts of {end} and {len(batch) - end} samples")
    length = combined.norm() / whole.norm()
    cosine = nn.functional.cosine_similarity(combined, whole).item()
    print(f"combined gradient against that of the batch: {length:.4f} as long, cosine {cosine:.4f}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
