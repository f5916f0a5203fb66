"""Gradient accumulation: several backward passes for each update and each all-reduce.

A rank takes its batch in microbatches, so that only one microbatch's activations are in
memory. backward() adds to `.grad`; each loss is weighted by its microbatch's share of
the samples, so the sum is the gradient of the batch's mean. The ranks communicate
after the last microbatch only: one all-reduce of the gradients for each update.

torchrun --nproc-per-node 2 accumulation_by_hand.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss

BATCH, MICROBATCH, WIDTH, STEPS = 64, 12, 200, 5  # 12 + 12 + 8 samples on each rank


def accumulate_gradients(model, inputs, targets, microbatch_size):
    """Add up the gradients of all microbatches, without communication."""
    parts = inputs.split(microbatch_size), targets.split(microbatch_size)
    for samples, labels in zip(*parts, strict=True):
        share = len(samples) / len(inputs)  # the last microbatch may be smaller
        loss = share * mse_loss(model(samples), labels)
        loss.backward()


def average_gradients(model):
    """Average the gradients over the ranks. Returns the bytes that were all-reduced."""
    num_bytes = 0
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
        num_bytes += p.grad.nbytes
    return num_bytes


def build_model():
    torch.manual_seed(0)  # the same values on every rank
    return nn.Sequential(nn.Linear(20, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    single, model = build_model(), build_model()
    inputs, targets = torch.randn(BATCH, 20), torch.randn(BATCH, 1)
    own_inputs = inputs.chunk(world_size)[rank]
    own_targets = targets.chunk(world_size)[rank]
    single_optimizer = torch.optim.SGD(single.parameters(), lr=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        single_optimizer.zero_grad()  # one process, the whole batch at once
        mse_loss(single(inputs), targets).backward()
        single_optimizer.step()

        optimizer.zero_grad()
        accumulate_gradients(model, own_inputs, own_targets, MICROBATCH)
        num_bytes = average_gradients(model)
        optimizer.step()
    if rank == 0:
        pairs = zip(single.parameters(), model.parameters(), strict=True)
        difference = max((a - b).abs().max().item() for a, b in pairs)
        num_microbatches = len(own_inputs.split(MICROBATCH))
        print(f"largest difference from one process: {difference:.1e}")
        print(f"microbatches in a step: {num_microbatches}")
        print(f"bytes all-reduced in a step: {num_bytes:,}")
        print(f"after every microbatch it would be: {num_microbatches * num_bytes:,}")
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
