"""DDP averages the sums of losses; one factor makes means per token of the gradients."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

PADDING = -100


def train(model, updates, learning_rate):
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(replica.parameters(), lr=learning_rate)
    losses = []
    for microbatches in updates:
        optimizer.zero_grad()
        totals = torch.zeros(2)
        for index, (inputs, targets) in enumerate(microbatches):
            with replica.no_sync() if index < len(microbatches) - 1 else nullcontext():
                logits = replica(inputs).transpose(1, 2)
                loss = cross_entropy(logits, targets, ignore_index=PADDING, reduction="sum")
                loss.backward()
            totals += torch.stack([loss.detach(), (targets != PADDING).sum()])
        summed = dist.all_reduce(totals, async_op=True)
        summed.wait()
        for parameter in model.parameters():
            parameter.grad *= dist.get_world_size() / totals[1]
        optimizer.step()
        losses.append(float(totals[0] / totals[1]))
    return losses
