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
        self.waiting, self.most_waiting = {}, 0
        self.rank, self.last = dist.get_rank(), dist.get_world_size() - 1

    def transfer(self, peer, outgoing=None, *, receives=False):
        """Send to a neighbour, receive from it, or both at once. Returns what arrived."""
        if not 0 <= peer <= self.last:
            return None  # the first and the last stage have a single neighbour
        incoming = torch.empty_like(self.inputs[0]) if receives else None  # all have this shape
        both = (dist.isend, outgoing), (dist.irecv, incoming)
        calls = [dist.P2POp(call, tensor, peer) for call, tensor in both if tensor is not None]
        for work in dist.batch_isend_irecv(calls) if calls else []:
            work.wait()
        return incoming

    def forward(self, index, inputs):
        """The outputs of a microbatch; the last stage keeps its loss and sends nothing."""
        inputs = self.inputs[index] if self.rank == 0 else inputs.requires_grad_()
        outputs = self.layers(inputs)
        if self.rank == self.last:  # the loss of the batch is the mean over its microbatches
            outputs = mse_loss(outputs, self.targets[index]) / len(self.targets)
        self.waiting[index] = inputs, outputs
        self.most_waiting = max(self.most_waiting, len(self.waiting))
        return outputs.detach()

    def backward(self, index, gradient):
        """The gradient of a microbatch's inputs; the last stage starts from the loss."""
        inputs, outputs = self.waiting.pop(index)
        outputs.backward(gradient)
        return inputs.grad


def one_forward_one_backward(stage):
    previous, following = stage.rank - 1, stage.rank + 1
    num_microbatches = len(stage.inputs)
    num_warmup = min(stage.last - stage.rank, num_microbatches)
    for index in range(num_warmup):  # warm-up
        outputs = stage.forward(index, stage.transfer(previous, receives=True))
        stage.transfer(following, outputs)
    inputs = None
    if num_warmup < num_microbatches:
        inputs = stage.transfer(previous, receives=True)
    for index in range(num_warmup, num_microbatches):  # steady state
        # Neighbours send to each other: one batch, so that neither call waits for the other.
        outputs = stage.forward(index, inputs)
        gradient = stage.transfer(following, outputs, receives=True)
        gradient = stage.backward(index - num_warmup, gradient)
        inputs = stage.transfer(previous, gradient, receives=index + 1 < num_microbatches)
    for index in range(num_microbatches - num_warmup, num_microbatches):  # cool-down
        gradient = stage.transfer(following, receives=True)
        stage.transfer(previous, stage.backward(index, gradient))


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
