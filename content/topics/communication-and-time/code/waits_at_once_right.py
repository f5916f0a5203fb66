"""Right: each rank waits for the sums when backward has ended.

torchrun --nproc-per-node 2 waits_at_once_right.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH, NUM_LAYERS = 64, 4

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(NUM_LAYERS)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
pending, num_pending = [], []


def reduce(parameter):
    pending.append(dist.all_reduce(parameter.grad, async_op=True))
    num_pending.append(len(pending))


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(reduce)
samples = torch.randn(2 * world_size, WIDTH)[rank::world_size]
model(samples).square().mean().backward()
for work in pending:
    work.wait()
for parameter in model.parameters():
    parameter.grad /= world_size
optimizer.step()

report = [{}] * world_size
dist.all_gather_object(report, {"most_pending": max(num_pending)})
if rank == 0:
    print(f"{NUM_LAYERS} layers, at most {max(num_pending)} all-reduce pending at a time")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
