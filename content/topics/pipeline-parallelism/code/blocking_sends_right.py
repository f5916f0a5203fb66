"""Right: a send and a receive of one pair of ranks are one batch.

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


def transfer(outgoing, incoming):
    """Send to the other stage and receive from it; None stands for nothing."""
    both = (dist.isend, outgoing), (dist.irecv, incoming)
    calls = [dist.P2POp(call, tensor, 1 - rank) for call, tensor in both if tensor is not None]
    for work in dist.batch_isend_irecv(calls):
        work.wait()


def first_stage():
    waiting = []
    for index in range(MICROBATCHES + 1):  # 1F1B: one forward pass ahead of the last stage
        outgoing = incoming = None
        if index < MICROBATCHES:
            waiting.append(layer(batch[index]))
            outgoing = waiting[-1].detach()
        if index > 0:
            incoming = torch.empty_like(batch[0])
        transfer(outgoing, incoming)
        if index > 0:
            waiting.pop(0).backward(incoming)


def last_stage():
    outgoing = None
    for index in range(MICROBATCHES + 1):
        incoming = torch.empty_like(batch[0]) if index < MICROBATCHES else None
        transfer(outgoing, incoming)
        if index < MICROBATCHES:
            loss = mse_loss(layer(incoming.requires_grad_()), targets[index]) / MICROBATCHES
            loss.backward()
            outgoing = incoming.grad


if rank == 0:
    first_stage()
    print(f"all {MICROBATCHES} microbatches went through both stages")
else:
    last_stage()
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
