"""FSDP: each rank stores a shard of every unit and gathers a unit only while it runs.

A unit's parameters are views of one flat tensor. An all-gather fills it before the
unit's forward pass and again before its backward pass; after each, its memory is freed.
A reduce-scatter leaves each rank its shard of the summed gradient, for its optimizer.
Padding is left out: the sizes here divide evenly.

torchrun --nproc-per-node 2 fsdp_by_hand.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss
from torch.nn.utils import parameters_to_vector, vector_to_parameters

BATCH, WIDTH, DEPTH, STEPS = 32, 256, 4, 5
# closed_form_bytes: 4 * DEPTH * (WIDTH * WIDTH + WIDTH) // 2


class FSDPUnit:
    """A module whose parameters are sharded over the ranks while they are idle."""

    def __init__(self, module):
        self.parameters, self.num_ready = list(module.parameters()), 0
        self.flat = parameters_to_vector(self.parameters).detach()
        vector_to_parameters(self.flat, self.parameters)  # makes them views of it
        shard = self.flat.chunk(dist.get_world_size())[dist.get_rank()]
        self.shard = nn.Parameter(shard.clone())
        self.reshard()
        module.register_forward_pre_hook(self.unshard)
        module.register_forward_hook(self.after_forward)
        for p in self.parameters:
            p.register_post_accumulate_grad_hook(self.after_gradient)

    def unshard(self, *_):
        self.flat.untyped_storage().resize_(self.flat.nbytes)
        dist.all_gather_single(self.flat, self.shard.detach())

    def reshard(self):
        self.flat.untyped_storage().resize_(0)  # frees the gathered parameters

    def after_forward(self, module, inputs, outputs):
        self.reshard()
        outputs.register_hook(self.unshard)  # runs before the unit's backward pass

    def after_gradient(self, parameter):
        self.num_ready += 1
        if self.num_ready == len(self.parameters):  # the unit's backward pass is over
            self.num_ready = 0
            self.reshard()
            gradient = parameters_to_vector(p.grad for p in self.parameters)
            self.shard.grad = torch.empty_like(self.shard)
            dist.reduce_scatter_single(self.shard.grad, gradient)
            self.shard.grad /= dist.get_world_size()
            for p in self.parameters:
                p.grad = None


def train(model, parameters, inputs, targets):
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        optimizer.step()


def build_model():
    torch.manual_seed(0)  # the same values on every rank
    layers = [(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(DEPTH)]
    return nn.Sequential(*(nn.Sequential(*layer) for layer in layers))


def main():
    dist.init_process_group("gloo")
    rank, ours, theirs = dist.get_rank(), build_model(), build_model()
    torch.manual_seed(rank)  # each rank has samples of its own
    samples = torch.randn(2, BATCH, WIDTH)
    units = [FSDPUnit(layer) for layer in ours]
    train(ours, [unit.shard for unit in units], *samples)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in (*theirs, theirs):
        fully_shard(module, mesh=mesh)
    train(theirs, theirs.parameters(), *samples)
    difference = (ours(samples[0]) - theirs(samples[0])).abs().max().item()
    stored = sum(unit.shard.nbytes for unit in units)
    if rank == 0:
        print(f"largest difference of outputs from fully_shard: {difference:.1e}")
        print(f"bytes of all parameters: {sum(u.flat.nbytes for u in units):,}")
        print(f"bytes stored by rank 0: {stored:,}")
        print(f"bytes gathered at once: {max(u.flat.nbytes for u in units):,}")
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()
    return [{"difference": difference, "counted_bytes": stored}]


if __name__ == "__main__":
    report = main()
