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
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.functional import mse_loss

STAGES, BATCH, MICROBATCHES, WIDTH = 4, 32, 8, 64
# closed_form_stored: MICROBATCHES


class Stage:
    """One rank's layers, and the microbatches that wait for their backward pass."""

    def __init__(self, layers, inputs, targets):
        self.layers, self.waiting, self.most_waiting = layers, {}, 0
        self.inputs, self.targets = inputs, targets  # one tensor for each microbatch
        self.rank, self.last = dist.get_rank(), dist.get_world_size() - 1

    def forward(self, index):
        inputs = self.inputs[index]
        if self.rank > 0:
            inputs = torch.empty_like(inputs, requires_grad=True)  # all have this shape
            dist.recv(inputs.detach(), self.rank - 1)
        outputs = self.layers(inputs)
        if self.rank < self.last:
            dist.send(outputs.detach(), self.rank + 1)
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
            dist.send(inputs.grad, self.rank - 1)


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
    ours, theirs = build_stages()[rank], build_stages()[rank]
    batch = torch.randn(2, BATCH, WIDTH)  # the same on every rank
    stage = Stage(ours, *(part.chunk(MICROBATCHES) for part in batch))
    gpipe(stage)
    torchs = PipelineStage(theirs, rank, STAGES, torch.device("cpu"))
    schedule = ScheduleGPipe(torchs, MICROBATCHES, loss_fn=mse_loss)
    inputs = batch[:1] if rank == 0 else []  # the other stages receive theirs
    schedule.step(*inputs, target=batch[1] if rank == STAGES - 1 else None)
    pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
    difference = max((a.grad - b.grad).abs().max().item() for a, b in pairs)
    own = {"difference": difference, "num_stored": stage.most_waiting}
    dist.all_gather_object(reports, own)
    if rank == 0:
        difference = max(one["difference"] for one in reports)
        print(f"largest difference from ScheduleGPipe: {difference:.1e}")
        stored = [one["num_stored"] for one in reports]
        print(f"microbatches stored at once, by rank: {stored}")
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()
    return reports


if __name__ == "__main__":
    report = main()
