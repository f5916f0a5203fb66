"""DDP: replicas whose gradients are averaged, bucket by bucket, during backward.

All ranks start from rank 0's parameters. A hook runs whenever backward has computed a
gradient. When a bucket's gradients are complete, its all-reduce starts, and backward
continues. Before the update, each rank waits for all buckets and divides the sums by
the number of ranks, so every replica takes the same step.

torchrun --nproc-per-node 2 ddp_by_hand.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector, vector_to_parameters

BATCH, WIDTH, STEPS = 32, 200, 5
# closed_form_bytes: 4 * (20 * WIDTH + WIDTH + WIDTH * WIDTH + WIDTH + WIDTH + 1)


class Bucket:
    """Parameters whose gradients share one all-reduce."""

    def __init__(self, parameters):
        self.parameters, self.num_ready = parameters, 0
        for p in parameters:
            p.register_post_accumulate_grad_hook(self.mark_ready)

    def mark_ready(self, parameter):
        """Start the all-reduce once backward has computed the last gradient."""
        self.num_ready += 1
        if self.num_ready == len(self.parameters):
            self.sum = parameters_to_vector(p.grad for p in self.parameters)
            self.work = dist.all_reduce(self.sum, async_op=True)

    def finish(self):
        """Wait for the sum and put the mean into the gradients."""
        self.work.wait()
        mean = self.sum / dist.get_world_size()
        vector_to_parameters(mean, [p.grad for p in self.parameters])
        self.num_ready = 0


def replicate(model):
    """Copy rank 0's parameters to all ranks, and make a bucket of each linear layer."""
    for p in model.parameters():
        dist.broadcast(p.detach(), src=0)
    return [Bucket(list(layer.parameters())) for layer in model[::2]]


def train(model, inputs, targets, buckets=()):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        for bucket in buckets:
            bucket.finish()
        optimizer.step()
    return parameters_to_vector(model.parameters()).detach()


def build_model(seed):
    torch.manual_seed(seed)
    layers = nn.Linear(20, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh()
    return nn.Sequential(*layers, nn.Linear(WIDTH, 1))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ours = build_model(seed=rank)  # differs between ranks until it is replicated
    theirs = DistributedDataParallel(build_model(seed=rank))
    inputs, targets = torch.randn(BATCH, 20), torch.randn(BATCH, 1)  # this rank's own
    buckets = replicate(ours)
    trained = train(ours, inputs, targets, buckets)
    difference = (trained - train(theirs, inputs, targets)).abs().max().item()
    sizes = [bucket.sum.nbytes for bucket in buckets]
    if rank == 0:
        print(f"largest difference from DistributedDataParallel: {difference:.1e}")
        print(f"bytes of each bucket: {sizes}")
        print(f"bytes all-reduced in a step: {sum(sizes):,}")
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()
    return [{"difference": difference, "counted_bytes": sum(sizes)}]


if __name__ == "__main__":
    report = main()
