"""Two stages by hand: forward passes of all microbatches, then backward passes.

torchrun --nproc-per-node 2 microbatch_loss_wrong.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss

MICROBATCHES, BATCH, WIDTH, STEPS = 8, 64, 32, 4

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
layer = nn.Linear(WIDTH, WIDTH)  # this rank's stage
optimizer = torch.optim.SGD(layer.parameters(), lr=2.0)
torch.manual_seed(STEPS)
batch, targets = (part.chunk(MICROBATCHES) for part in torch.randn(2, BATCH, WIDTH))

for step in range(STEPS):
    optimizer.zero_grad()
    outputs, losses = [], []
    for samples, target in zip(batch, targets, strict=True):
        if rank == 0:
            outputs.append(layer(samples))
            dist.send(outputs[-1].detach(), 1)
        else:
            received = torch.empty_like(samples, requires_grad=True)
            dist.recv(received.detach(), 0)
            loss = mse_loss(layer(received), target)
            losses.append(loss.item())
            outputs.append((loss, received))
    for output in outputs:
        if rank == 0:
            gradient = torch.empty_like(output)
            dist.recv(gradient, 1)
            output.backward(gradient)
        else:
            loss, received = output
            loss.backward()
            dist.send(received.grad, 0)
    optimizer.step()
    mean = torch.tensor(losses if rank == 1 else [0.0]).mean()
    dist.broadcast(mean, src=1)
    if rank == 0:
        print(f"step {step}: loss {mean.item():.2f}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
