"""Right: sends do not block, so both neighbours reach their receive.

torchrun --nproc-per-node 2 blocking_sends_right.py
"""

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss

MICROBATCHES, BATCH, WIDTH = 4, 32, 64

dist.init_process_group("gloo", timeout=timedelta(seconds=5))
rank = dist.get_rank()
torch.manual_seed(rank)
layer = nn.Linear(WIDTH, WIDTH)  # this rank's stage
batch, targets = (part.chunk(MICROBATCHES) for part in torch.randn(2, BATCH, WIDTH))
waiting, sends = [], []


def forward(samples, target):
    if rank == 0:
        waiting.append((samples, layer(samples)))
        sends.append(dist.isend(waiting[-1][1].detach(), 1))
    else:
        received = torch.empty_like(samples, requires_grad=True)
        dist.recv(received.detach(), 0)
        waiting.append((received, mse_loss(layer(received), target) / MICROBATCHES))


def backward():
    received, output = waiting.pop(0)
    if rank == 0:
        gradient = torch.empty_like(output)
        dist.recv(gradient, 1)
        output.backward(gradient)
    else:
        output.backward()
        sends.append(dist.isend(received.grad, 0))


for index, (samples, target) in enumerate(zip(batch, targets, strict=True)):
    forward(samples, target)
    if rank == 1 or index > 0:  # 1F1B: the first stage is one forward pass ahead
        backward()
if rank == 0:
    backward()
for send in sends:
    send.wait()
if rank == 0:
    print(f"all {MICROBATCHES} microbatches went through both stages")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
