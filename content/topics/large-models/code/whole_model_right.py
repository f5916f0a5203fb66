"""Right: the same layers over two ranks; they send only activations and gradients at the cut.

torchrun --nproc-per-node 2 whole_model_right.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH, DEPTH, STEPS = 2048, 8, 4


def layer(index: int) -> nn.Module:
    torch.manual_seed(index)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU())


dist.init_process_group("gloo")
rank = dist.get_rank()
mine = range(DEPTH // 2) if rank == 0 else range(DEPTH // 2, DEPTH)
model = nn.Sequential(*(layer(index) for index in mine))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
torch.manual_seed(DEPTH)
samples, targets = torch.randn(16, WIDTH), torch.rand(16, WIDTH)
if rank == 0:
    num_parameters = sum(p.numel() for p in model.parameters())
    print(f"rank 0 holds {num_parameters:,} parameters")

for step in range(STEPS):
    optimizer.zero_grad()
    loss, border = torch.zeros(()), torch.empty_like(samples)
    if rank == 0:
        output = model(samples)
        dist.send(output.detach(), dst=1)
        dist.recv(border, src=1)  # the gradient of what was sent
        output.backward(border)
    else:
        dist.recv(border, src=0)  # what the first layers made of the samples
        output = model(border.requires_grad_())
        errors = nn.functional.mse_loss(output, targets, reduction="sum")
        loss = errors / len(samples)
        loss.backward()
        dist.send(border.grad, dst=0)
    optimizer.step()
    loss = loss.detach()
    dist.broadcast(loss, src=1)
    if rank == 0:
        print(f"step {step}: loss {loss.item():.2f}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()

# copies_per_parameter: 2
# model_bytes: 4 * DEPTH * (WIDTH * WIDTH + 3 * WIDTH)
# largest_stage_bytes: 4 * ((DEPTH + 1) // 2) * (WIDTH * WIDTH + 3 * WIDTH)
# budget_bytes: copies_per_parameter * (largest_stage_bytes + model_bytes) // 2
