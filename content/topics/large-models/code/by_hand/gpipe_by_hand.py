"""GPipe: a batch in microbatches, all forward passes first, then all backward passes.

Each rank stores one stage, a part of the layers. It receives activations from the stage
before it and sends its own to the stage after it; in backward, gradients travel the
other way. Until its backward pass, each microbatch's activations stay in memory, so a
stage stores those of all microbatches at once.

torchrun --nproc-per-node 4 gpipe_by_hand.py
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
        self.layers, self.waiting, self.most_waiting = layers, {}, 0
        self.inputs, self.targets = inputs, targets  # one tensor for each microbatch
        self.rank, self.last = dist.get_rank(), dist.get_world_size() - 1
        self.sent_bytes = 0

    def send(self, tensor, to):
        dist.send(tensor, to)
        self.sent_bytes += tensor.nbytes

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


def gpipe(stage):
    """One batch; the gradients of all microbatches add up in the stage's parameters."""
    for index in range(len(stage.inputs)):
        stage.forward(index)
    for index in range(len(stage.inputs)):
        stage.backward(index)


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
    gpipe(stage)
    pairs = zip(layers.parameters(), whole[rank].parameters(), strict=True)
    difference = max((a.grad - b.grad).abs().max().item() for a, b in pairs)
    dist.all_gather_object(reports, (difference, stage.most_waiting, stage.sent_bytes))
    if rank == 0:
        differences, waiting, sent = zip(*reports, strict=True)
        print(f"largest difference from one process: {max(differences):.1e}")
        print(f"microbatches stored at once, by rank: {waiting}")
        print(f"bytes sent, by rank: {sent}")
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
