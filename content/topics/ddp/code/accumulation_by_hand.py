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
from torch.nn.parallel import DistributedDataParallel

BATCH, MICROBATCH, WIDTH, STEPS = 32, 12, 200, 5  # 12 + 12 + 8 samples
# closed_form_bytes: 4 * (20 * WIDTH + WIDTH + WIDTH + 1)


def accumulate_gradients(model, microbatches):
    """Add up the gradients of microbatches, each weighted by its number of samples."""
    for samples, labels in microbatches:
        loss = mse_loss(model(samples), labels)
        (loss * len(samples) / BATCH).backward()


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
    rank, ours, theirs = dist.get_rank(), build_model(), build_model()
    replica = DistributedDataParallel(theirs)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (ours, theirs)]
    torch.manual_seed(rank)  # each rank has samples of its own
    inputs, targets = torch.randn(BATCH, 20), torch.randn(BATCH, 1)
    parts = inputs.split(MICROBATCH), targets.split(MICROBATCH)
    microbatches = list(zip(*parts, strict=True))
    for _ in range(STEPS):
        accumulate_gradients(ours, microbatches)
        num_bytes = average_gradients(ours)

        with replica.no_sync():  # DDP accumulates without an all-reduce
            accumulate_gradients(replica, microbatches[:-1])
        accumulate_gradients(replica, microbatches[-1:])  # and then all-reduces the sum

        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
    difference = max((a - b).abs().max().item() for a, b in pairs)
    if rank == 0:
        print(f"largest difference from DDP with no_sync(): {difference:.1e}")
        print(f"microbatches in a step: {len(microbatches)}")
        print(f"bytes all-reduced in a step: {num_bytes:,}")
        print(f"after every microbatch it would be: {len(microbatches) * num_bytes:,}")
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()
    return [{"difference": difference, "counted_bytes": num_bytes}]


if __name__ == "__main__":
    report = main()
