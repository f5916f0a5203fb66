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
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.functional import mse_loss

STAGES, BATCH, MICROBATCHES, WIDTH = 4, 32, 8, 64
# closed_form_stored: STAGES


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
    ours, theirs = build_stages()[rank], build_stages()[rank]
    batch = torch.randn(2, BATCH, WIDTH)  # the same on every rank
    stage = Stage(ours, *(part.chunk(MICROBATCHES) for part in batch))
    one_forward_one_backward(stage)
    torchs = PipelineStage(theirs, rank, STAGES, torch.device("cpu"))
    schedule = Schedule1F1B(torchs, MICROBATCHES, loss_fn=mse_loss)
    inputs = batch[:1] if rank == 0 else []  # the other stages receive theirs
    schedule.step(*inputs, target=batch[1] if rank == STAGES - 1 else None)
    pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
    difference = max((a.grad - b.grad).abs().max().item() for a, b in pairs)
    own = {"difference": difference, "num_stored": stage.most_waiting}
    dist.all_gather_object(reports, own)
    if rank == 0:
        difference = max(one["difference"] for one in reports)
        print(f"largest difference from Schedule1F1B: {difference:.1e}")
        stored = [one["num_stored"] for one in reports]
        print(f"microbatches stored at once, by rank: {stored}")
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()
    return reports


if __name__ == "__main__":
    report = main()
