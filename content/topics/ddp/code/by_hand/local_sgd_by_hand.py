"""Local SGD: ranks train on their own, and average their parameters now and then.

Each rank takes several steps of SGD on its own samples without communication. Then one
all-reduce of the parameters replaces every replica by the mean of all replicas. Ranks
send the bytes of the model once in a period instead of once a step; between two
averages the replicas differ, so the result is not that of synchronous training.

torchrun --nproc-per-node 2 local_sgd_by_hand.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.utils import parameters_to_vector, vector_to_parameters

BATCH, WIDTH, STEPS, PERIOD, LEARNING_RATE = 16, 64, 24, 4, 0.05


def average_parameters(model):
    """Replace the parameters by their mean over the ranks. Returns its bytes."""
    mean = parameters_to_vector(model.parameters()).detach()
    dist.all_reduce(mean)
    mean /= dist.get_world_size()
    vector_to_parameters(mean, model.parameters())
    return mean.nbytes


def train(model, inputs, targets, period):
    """Average the parameters every `period` steps. Returns the bytes all-reduced."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    num_bytes = 0
    for step in range(STEPS):
        optimizer.zero_grad()
        mse_loss(model(inputs[step]), targets[step]).backward()
        optimizer.step()
        if (step + 1) % period == 0:
            num_bytes += average_parameters(model)
    return num_bytes


def build_model():
    torch.manual_seed(0)  # the same values on every rank
    return nn.Sequential(nn.Linear(20, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))


def build_samples(seed):
    torch.manual_seed(seed)
    inputs = torch.randn(STEPS, BATCH, 20)
    return inputs, inputs.sum(2, keepdim=True)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    inputs, targets = build_samples(rank)  # every rank has samples of its own
    single = build_model()  # one process with all samples
    samples = [build_samples(r) for r in range(world_size)]
    everything = [torch.cat(parts, 1) for parts in zip(*samples, strict=True)]
    train(single, *everything, period=STEPS + 1)  # never averages
    expected = parameters_to_vector(single.parameters()).detach()
    for period in (1, PERIOD):
        model = build_model()
        num_bytes = train(model, inputs, targets, period)
        averaged = parameters_to_vector(model.parameters()).detach()
        difference = (averaged - expected).abs().max().item()
        if rank == 0:
            print(f"average every {period} steps: {num_bytes:,} bytes all-reduced")
            print(f"largest difference from one process: {difference:.1e}")
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
