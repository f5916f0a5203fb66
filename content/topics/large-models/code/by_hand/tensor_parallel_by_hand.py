"""Tensor parallelism: a column-parallel linear layer, then a row-parallel one.

Each rank holds some output features (columns) of the first layer and the same input
features (rows) of the second, so the activations between the layers are never gathered.
The second layer's outputs are partial sums, which one all-reduce adds in forward. In
backward, one all-reduce adds the gradients of the input, which every rank has used.

torchrun --nproc-per-node 2 tensor_parallel_by_hand.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import linear

BATCH, WIDTH, HIDDEN = 32, 64, 256


class CopyToRanks(torch.autograd.Function):
    """Identity in forward; in backward, the sum of all ranks' gradients."""

    @staticmethod
    def forward(ctx, inputs):
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


class SumOverRanks(torch.autograd.Function):
    """The sum of all ranks' partial outputs in forward; in backward, identity."""

    @staticmethod
    def forward(ctx, partial):
        total = partial.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def own_part(parameter, dim):
    """This rank's equal part of a parameter along one dimension."""
    part = parameter.detach().chunk(dist.get_world_size(), dim)[dist.get_rank()]
    return nn.Parameter(part.clone())


class ColumnParallelLinear(nn.Module):
    """A linear layer of which each rank computes some of the output features."""

    def __init__(self, whole):
        super().__init__()
        # A weight has the shape (outputs, inputs), so its dimension 0 is divided.
        self.weight, self.bias = own_part(whole.weight, 0), own_part(whole.bias, 0)

    def forward(self, inputs):
        return linear(CopyToRanks.apply(inputs), self.weight, self.bias)


class RowParallelLinear(nn.Module):
    """A linear layer to which each rank contributes some of the input features."""

    def __init__(self, whole):
        super().__init__()
        self.weight = own_part(whole.weight, 1)
        self.bias = nn.Parameter(whole.bias.detach().clone())

    def forward(self, inputs):
        # The bias is added after the sum: inside, every rank would add it.
        return SumOverRanks.apply(linear(inputs, self.weight)) + self.bias


def build_mlp():
    torch.manual_seed(0)  # the same values on every rank
    return nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH))


def parallelize(mlp):
    first, gelu, second = mlp
    return nn.Sequential(ColumnParallelLinear(first), gelu, RowParallelLinear(second))


def main():
    dist.init_process_group("gloo")
    whole = build_mlp()
    split = parallelize(whole)
    inputs = torch.randn(BATCH, WIDTH, requires_grad=True)  # the batch is not divided
    outputs = [mlp(inputs) for mlp in (whole, split)]
    gradients = [torch.autograd.grad(y.square().mean(), inputs)[0] for y in outputs]
    if dist.get_rank() == 0:
        for name, (a, b) in ("outputs", outputs), ("input's gradients", gradients):
            difference = (a - b).abs().max().item()
            print(f"largest difference of the {name}: {difference:.1e}")
        sizes = [sum(p.numel() for p in mlp.parameters()) for mlp in (whole, split)]
        print(f"parameters: {sizes[0]:,}, of which rank 0 stores {sizes[1]:,}")
        print(f"bytes all-reduced in forward and in backward: {inputs.nbytes:,} each")
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
