"""1F1B: a pipeline that alternates one forward pass with one backward pass.

Warm-up: a rank runs one forward pass for each later stage. Steady state: it alternates
the forward pass of a new microbatch and the backward pass of the oldest. Cool-down: it
runs the remaining backward passes. The last stage stores one microbatch's activations
at once, the first at most as many as there are stages.

torchrun --nproc-per-node 4 one_forward_one_backward_by_hand.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss

STAGES, BATCH, MICROBATCHES, WIDTH = 4, 32, 8, 64


class Stage:
    """One rank's layers, and the microbatches that wait for their backward pass."""

    def __init__(self, layers, inputs, targets):
        self.layers, self.inputs, self.targets = layers, inputs, targets
        self.waiting, self.most_waiting, self.sends = {}, 0, {}
        self.rank, self.last = dist.get_rank(), dist.get_world_size() - 1

    def send(self, tensor, to):
        # In steady state, neighbours send to each other: blocking sends can deadlock.
        if to in self.sends:
            self.sends[to].wait()
        self.sends[to] = dist.isend(tensor, to)

    def forward(self, index):
        inputs = self.inputs[index]
        if self.rank > 0:
            inputs = torch.empty_like(inputs, requires_grad=True)  # all have this shape
            dist.recv(inputs.detach(), self.rank - 1)
        outputs = self.layers(inputs)
        if self.rank < self.last:
            self.send(outputs.detach(), self.rank + 1)
        else:  # the loss of the batch is the mean over its microbatches
            outputs = mse_loss(outputs, self.targets[index]) / len(self.targets)
        self.waiting[index] = inputs, outputs
        self.most_waiting = max(self.most_waiting, len(self.waiting))

    def backward(self, index):
        inputs, outputs = self.waiting.pop(index)
        gradient = None  # the last stage starts from the loss
        if self.rank < self.last:
            gradient = torch.empty_like(outputs)
            dist.recv(gradient, self.rank + 1)
        outputs.backward(gradient)
        if self.rank > 0:
            self.send(inputs.grad, self.rank - 1)


def one_forward_one_backward(stage):
    num_microbatches = len(stage.inputs)
    num_warmup = min(stage.last - stage.rank, num_microbatches)
    for index in range(num_warmup):  # warm-up
        stage.forward(index)
    for index in range(num_warmup, num_microbatches):  # steady state
        stage.forward(index)
        stage.backward(index - num_warmup)
    for index in range(num_microbatches - num_warmup, num_microbatches):  # cool-down
        stage.backward(index)
    for work in stage.sends.values():
        work.wait()


def build_stages():
    torch.manual_seed(0)  # the same values on every rank
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(STAGES)]


def main():
    dist.init_process_group("gloo")
    rank, reports = dist.get_rank(), [None] * STAGES
    whole, layers = build_stages(), build_stages()[rank]
    inputs, targets = torch.randn(2, BATCH, WIDTH)
    mse_loss(nn.Sequential(*whole)(inputs), targets).backward()  # one process
    stage = Stage(layers, inputs.chunk(MICROBATCHES), targets.chunk(MICROBATCHES))
    one_forward_one_backward(stage)
    pairs = zip(layers.parameters(), whole[rank].parameters(), strict=True)
    difference = max((a.grad - b.grad).abs().max().item() for a, b in pairs)
    dist.all_gather_object(reports, (difference, stage.most_waiting))
    if rank == 0:
        differences, waiting = zip(*reports, strict=True)
        print(f"largest difference from one process: {max(differences):.1e}")
        print(f"microbatches stored at once, by rank: {waiting}")
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
