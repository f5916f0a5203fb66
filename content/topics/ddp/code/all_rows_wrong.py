"""Wrong: one line of this program lets the second rank work for nothing.

torchrun --nproc-per-node 2 all_rows_wrong.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

NUM_ROWS, BATCH = 40, 10

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
rows = TensorDataset(torch.arange(NUM_ROWS), torch.randn(NUM_ROWS, 20))
sampler = DistributedSampler(rows, seed=1)
loader = DataLoader(rows, batch_size=BATCH)
model = DistributedDataParallel(nn.Linear(20, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

seen = []
for numbers, features in loader:
    seen += numbers.tolist()
    optimizer.zero_grad()
    model(features).square().mean().backward()
    optimizer.step()

told = [None] * world_size
dist.all_gather_object(told, seen)
if rank == 0:
    given = [number for one in told for number in one]
    print(f"steps taken: {len(seen) // BATCH}")
    print(f"rows computed: {len(given)}, different rows: {len(set(given))}")
    print(f"first rows of rank 0: {told[0][:4]}, of rank 1: {told[1][:4]}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
