"""Both sums are started, and waited for before they are read."""

import torch
import torch.distributed as dist
from torch.nn.functional import gelu


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, partial, bias):
        total = partial.clone()
        started = dist.all_reduce(total, async_op=True)
        whole_bias = bias.expand_as(total)
        started.wait()
        return total + whole_bias

    @staticmethod
    def backward(ctx, gradient):
        return gradient, gradient.sum(0)


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs):
        return inputs.clone()

    @staticmethod
    def backward(ctx, gradient):
        total = gradient.clone()
        dist.all_reduce(total, async_op=True).wait()
        return total


def mlp(inputs, first, first_bias, second, second_bias):
    hidden = gelu(torch.addmm(first_bias, Copy.apply(inputs), first))
    return Sum.apply(hidden @ second, second_bias)
