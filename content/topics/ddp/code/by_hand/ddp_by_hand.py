"""DDP: replicas whose gradients are averaged, bucket by bucket, during backward.

All ranks start from rank 0's parameters. A hook runs whenever backward has computed a
gradient. When a bucket's gradients are complete, its all-reduce starts, and backward
continues. Before the update, each rank waits for all buckets and divides by the number
of ranks: every replica then takes the step of one process with the whole batch.

torchrun --nproc-per-node 2 ddp_by_hand.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.utils import parameters_to_vector, vector_to_parameters

BATCH, WIDTH, STEPS, BUCKET_BYTES = 32, 200, 5, 100_000


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
    """Copy rank 0's parameters to all ranks; divide them into buckets."""
    groups, num_bytes = [[]], 0
    for p in reversed(list(model.parameters())):  # about the order of backward
        dist.broadcast(p.detach(), src=0)
        if groups[-1] and num_bytes + p.nbytes > BUCKET_BYTES:
            groups, num_bytes = [*groups, []], 0
        groups[-1].append(p)
        num_bytes += p.nbytes
    return [Bucket(group) for group in groups]


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
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = build_model(seed=rank)  # differs between ranks until it is replicated
    buckets = replicate(model)
    torch.manual_seed(0)
    inputs, targets = torch.randn(BATCH, 20), torch.randn(BATCH, 1)
    shard = slice(rank * BATCH // world_size, (rank + 1) * BATCH // world_size)
    replica = train(model, inputs[shard], targets[shard], buckets)
    if rank == 0:
        single = train(build_model(seed=0), inputs, targets)
        difference = (replica - single).abs().max().item()
        print(f"largest difference from one process: {difference:.1e}")
        print(f"bytes of each bucket: {[bucket.sum.nbytes for bucket in buckets]}")
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
