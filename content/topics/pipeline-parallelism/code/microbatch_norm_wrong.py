"""Two stages with batch normalization, under GPipe.

torchrun --nproc-per-node 2 microbatch_norm_wrong.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.functional import mse_loss

BATCH, WIDTH, STEPS = 32, 16, 3

dist.init_process_group("gloo")
rank = dist.get_rank()


def train(num_microbatches):
    """The loss of each step, with the batch cut into so many microbatches."""
    torch.manual_seed(rank)
    layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU())
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    torch.manual_seed(STEPS)
    batch, targets = torch.randn(2, BATCH, WIDTH)
    stage = PipelineStage(layers, rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, num_microbatches, loss_fn=mse_loss)
    for _ in range(STEPS):
        optimizer.zero_grad()
        losses = []
        if rank == 0:
            schedule.step(batch)
        else:
            schedule.step(target=targets, losses=losses)
            yield torch.stack(losses).mean().item()
        optimizer.step()


if rank == 0:
    print("loss of each step with 1 microbatch, then with 8:")
for num_microbatches in (1, 8):
    losses = [f"{loss:.4f}" for loss in train(num_microbatches)]
    gathered = [None, None]
    dist.all_gather_object(gathered, losses)
    if rank == 0:
        print(", ".join(gathered[1]))
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
