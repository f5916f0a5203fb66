# fault: the gradients of four microbatches are summed, and the loss is not divided by four
# cause: accumulation not divided
"""Gradient accumulation in the style of nanoGPT. After karpathy/nanoGPT#168 and #206."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient_accumulation_steps = 4
torch.manual_seed(1337)
raw = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 1))
model = DistributedDataParallel(raw)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
generator = torch.Generator().manual_seed(1337 + rank)


def get_batch():
    x = torch.randn(8, 10, generator=generator)
    return x, x.sum(1, keepdim=True).sin()


for _ in range(3):
    for micro_step in range(gradient_accumulation_steps):
        model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        x, y = get_batch()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
dist.destroy_process_group()
