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
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import parallel
from torch.nn.functional import linear

BATCH, WIDTH, HIDDEN = 32, 64, 256
# closed_form_bytes: 4 * ((WIDTH * HIDDEN + HIDDEN + HIDDEN * WIDTH) // 2 + WIDTH)


def sum_over_ranks(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total


class CopyToRanks(torch.autograd.Function):
    """Identity in forward; in backward, the sum of all ranks' gradients."""

    @staticmethod
    def forward(ctx, inputs):
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx, gradient):
        return sum_over_ranks(gradient)


class SumOverRanks(torch.autograd.Function):
    """The sum of all ranks' partial outputs in forward; in backward, identity."""

    @staticmethod
    def forward(ctx, partial):
        return sum_over_ranks(partial)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def own_part(parameter, dim):
    part = parameter.detach().chunk(dist.get_world_size(), dim)[dist.get_rank()]
    return nn.Parameter(part.clone())


class TensorParallelMLP(nn.Module):
    """Two linear layers, of which each rank stores its part of the hidden features."""

    def __init__(self, mlp):
        super().__init__()
        first, self.activation, second = mlp
        # A weight has the shape (outputs, inputs), so its dimension 0 is divided here.
        self.columns, self.bias = own_part(first.weight, 0), own_part(first.bias, 0)
        self.rows = own_part(second.weight, 1)
        self.second_bias = nn.Parameter(second.bias.detach().clone())

    def forward(self, inputs):
        hidden = linear(CopyToRanks.apply(inputs), self.columns, self.bias)
        partial = linear(self.activation(hidden), self.rows)
        # The bias is added after the sum: inside, every rank would add it.
        return SumOverRanks.apply(partial) + self.second_bias


def build_mlp():
    torch.manual_seed(0)  # the same values on every rank
    return nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH))


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    ours = TensorParallelMLP(build_mlp())
    plan = {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()}
    theirs = parallel.parallelize_module(build_mlp(), mesh, plan)
    inputs = torch.randn(BATCH, WIDTH, requires_grad=True)  # the batch is not divided
    outputs = [mlp(inputs) for mlp in (ours, theirs)]
    gradients = [torch.autograd.grad(y.square().mean(), inputs)[0] for y in outputs]
    pairs = outputs, gradients
    difference = max((a - b).abs().max().item() for a, b in pairs)
    whole = sum(p.nbytes for p in build_mlp().parameters())
    stored = sum(p.nbytes for p in ours.parameters())
    if dist.get_rank() == 0:
        print(f"largest difference from parallelize_module: {difference:.1e}")
        print(f"bytes of all parameters: {whole:,}")
        print(f"bytes stored by rank 0: {stored:,}")
        print(f"bytes all-reduced in forward and in backward: {inputs.nbytes:,} each")
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()
    return [{"difference": difference, "counted_bytes": stored}]


if __name__ == "__main__":
    report = main()
