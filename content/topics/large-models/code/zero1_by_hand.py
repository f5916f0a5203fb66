"""ZeRO-1: every rank has all parameters, and the optimizer state of one shard.

Backward leaves each rank the gradients of its own samples. A reduce-scatter gives each
rank the mean gradient of its shard; Adam updates this shard, with moments that no other
rank stores; an all-gather returns the updated parameters to every rank.

torchrun --nproc-per-node 2 zero1_by_hand.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.functional import mse_loss, pad
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector, vector_to_parameters

BATCH, WIDTH, STEPS, LEARNING_RATE = 32, 255, 5, 0.001
# num_padded: 20 * WIDTH + WIDTH + WIDTH + 1 + 1
# closed_form_bytes: 4 * 2 * num_padded // 2


def flatten(tensors):
    """One vector of all values, padded until the ranks can divide it evenly."""
    vector = parameters_to_vector(tensors).detach()
    return pad(vector, (0, -len(vector) % dist.get_world_size()))


class ZeRO1Adam:
    """Adam whose moments are sharded over the ranks."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        shards = flatten(self.parameters).chunk(dist.get_world_size())
        self.shard = shards[dist.get_rank()].clone()
        self.adam = torch.optim.Adam([self.shard], lr=LEARNING_RATE)

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None

    def step(self):
        """Average the gradients, update this rank's shard, and gather all shards."""
        gradients = flatten(p.grad for p in self.parameters)
        self.shard.grad = torch.empty_like(self.shard)
        dist.reduce_scatter_single(self.shard.grad, gradients)
        self.shard.grad /= dist.get_world_size()
        self.adam.step()
        updated = torch.empty_like(gradients)
        dist.all_gather_single(updated, self.shard)
        vector_to_parameters(updated, self.parameters)

    def state_bytes(self):
        """Bytes of the moments that this rank stores."""
        state = self.adam.state[self.shard]
        return state["exp_avg"].nbytes + state["exp_avg_sq"].nbytes


def train(model, optimizer, inputs, targets):
    for _ in range(STEPS):
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return parameters_to_vector(model.parameters()).detach()


def build_model():
    torch.manual_seed(0)  # the same values on every rank
    return nn.Sequential(nn.Linear(20, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))


def main():
    dist.init_process_group("gloo")
    rank, model = dist.get_rank(), build_model()
    replica = DistributedDataParallel(build_model())
    torch.manual_seed(rank)  # each rank has samples of its own
    samples = torch.randn(BATCH, 20), torch.randn(BATCH, 1)
    ours = ZeRO1Adam(model.parameters())
    theirs = ZeroRedundancyOptimizer(
        replica.parameters(), optimizer_class=torch.optim.Adam, lr=LEARNING_RATE
    )
    trained = train(model, ours, *samples)
    difference = (trained - train(replica, theirs, *samples)).abs().max().item()
    if rank == 0:
        print(f"largest difference from ZeroRedundancyOptimizer: {difference:.1e}")
        print(f"bytes of the parameters, on every rank: {trained.nbytes:,}")
        print(f"bytes of Adam's moments without sharding: {2 * trained.nbytes:,}")
        print(f"bytes of Adam's moments on rank 0: {ours.state_bytes():,}")
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()
    return [{"difference": difference, "counted_bytes": ours.state_bytes()}]


if __name__ == "__main__":
    report = main()
