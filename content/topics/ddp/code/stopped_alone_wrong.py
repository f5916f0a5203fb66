"""Wrong: each rank decides by its own validation loss when to stop.

torchrun --nproc-per-node 2 stopped_alone_wrong.py
"""

# expected: deadlocked

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

NUM_EPOCHS, PATIENCE = 6, 1

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(20, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
samples = torch.randn(10, 20)
held_out = [[5.0, 4.0, 4.5, 3.0, 2.0, 1.0], [5.0, 4.0, 3.0, 2.5, 2.0, 1.0]][rank]

best, num_worse = float("inf"), 0
for epoch in range(NUM_EPOCHS):
    optimizer.zero_grad()
    model(samples).square().mean().backward()
    optimizer.step()
    loss = torch.tensor(held_out[epoch])  # stands for a validation on the rank's own samples
    num_worse = 0 if loss < best else num_worse + 1
    best = min(best, loss.item())
    if num_worse == PATIENCE:
        break
print(f"rank {rank} ends after epoch {epoch}", flush=True)
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
