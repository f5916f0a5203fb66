"""Local SGD: ranks train independently and average their parameters periodically.

Each rank takes several steps of SGD on its own samples without communication. Then one
all-reduce of the parameters replaces every replica by the mean of all replicas. The
payload is the bytes of the model once in a period instead of once a step; between two
averages the replicas differ, so the result is not that of synchronous training.

torchrun --nproc-per-node 2 local_sgd_by_hand.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.functional import mse_loss
from torch.nn.utils import parameters_to_vector, vector_to_parameters

BATCH, WIDTH, STEPS, PERIOD, LEARNING_RATE = 16, 64, 24, 4, 0.05
# closed_form_bytes: STEPS // PERIOD * 4 * (20 * WIDTH + WIDTH + WIDTH + 1)


class PeriodicAverager:
    """Averages the parameters over the ranks once in a period of steps."""

    def __init__(self, period):
        self.period, self.num_steps, self.num_bytes = period, 0, 0

    def average_parameters(self, parameters):
        """Call this after every step; it communicates after the last of a period."""
        self.num_steps += 1
        if self.num_steps % self.period == 0:
            parameters = list(parameters)
            mean = parameters_to_vector(parameters).detach()
            dist.all_reduce(mean)
            mean /= dist.get_world_size()
            vector_to_parameters(mean, parameters)
            self.num_bytes += mean.nbytes


def train(model, averager, inputs, targets):
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for step in range(STEPS):
        optimizer.zero_grad()
        mse_loss(model(inputs[step]), targets[step]).backward()
        optimizer.step()
        averager.average_parameters(model.parameters())
    return parameters_to_vector(model.parameters()).detach()


def build_model():
    torch.manual_seed(0)  # the same values on every rank
    return nn.Sequential(nn.Linear(20, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))


def build_samples(seed):
    torch.manual_seed(seed)
    inputs = torch.randn(STEPS, BATCH, 20)
    return inputs, inputs.sum(2, keepdim=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    samples = build_samples(rank)  # every rank has samples of its own
    ours = PeriodicAverager(PERIOD)
    # Torch's averager communicates in the step after its warm-up, then once a period.
    theirs = PeriodicModelAverager(period=PERIOD, warmup_steps=PERIOD - 1)
    a, b = [train(build_model(), averager, *samples) for averager in (ours, theirs)]
    difference = (a - b).abs().max().item()
    if rank == 0:
        print(f"largest difference from PeriodicModelAverager: {difference:.1e}")
        print(f"bytes all-reduced in {STEPS} steps: {ours.num_bytes:,}")
        print(f"with an average in every step it would be: {STEPS * a.nbytes:,}")
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()
    return [{"difference": difference, "counted_bytes": ours.num_bytes}]


if __name__ == "__main__":
    report = main()
