"""Wrong: because of one line, the work of the second rank adds nothing.

torchrun --nproc-per-node 2 all_samples_wrong.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

NUM_SAMPLES, BATCH = 40, 10

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
samples = TensorDataset(torch.arange(NUM_SAMPLES), torch.randn(NUM_SAMPLES, 20))
sampler = DistributedSampler(samples, seed=1)
loader = DataLoader(samples, batch_size=BATCH)
model = DistributedDataParallel(nn.Linear(20, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

seen = []
for numbers, features in loader:
    seen += numbers.tolist()
    optimizer.zero_grad()
    model(features).square().mean().backward()
    optimizer.step()

gathered = [None] * world_size
dist.all_gather_object(gathered, seen)
if rank == 0:
    given = [number for one in gathered for number in one]
    print(f"steps taken: {len(seen) // BATCH}")
    print(f"samples computed: {len(given)}, different samples: {len(set(given))}")
    print(f"first samples of rank 0: {gathered[0][:4]}, of rank 1: {gathered[1][:4]}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
