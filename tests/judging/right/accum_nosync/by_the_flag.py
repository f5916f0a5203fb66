"""The flag that `no_sync` sets, and microbatches of unlike handling but equal size."""

import torch
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel


def train(model, batches, microbatches, learning_rate):
    replica = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(replica.parameters(), lr=learning_rate, momentum=0.9)
    for inputs, targets in batches:
        for index in range(microbatches):
            replica.require_backward_grad_sync = index == microbatches - 1
            own = slice(index, None, microbatches)
            (mse_loss(replica(inputs[own]), targets[own], reduction="sum") / len(inputs)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
