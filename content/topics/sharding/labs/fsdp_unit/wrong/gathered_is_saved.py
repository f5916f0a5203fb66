# fails: peak
"""Autograd saves what backward needs, and backward needs the weight."""

import torch
import torch.distributed as dist


class ShardedLinear(torch.autograd.Function):
    """A linear layer as one operation of autograd."""

    @staticmethod
    def forward(ctx, inputs, shard, num_outputs):
        flat = torch.empty(shard.numel() * dist.get_world_size())
        dist.all_gather_single(flat, shard)
        weight, bias = flat[:-num_outputs].view(num_outputs, -1), flat[-num_outputs:]
        ctx.save_for_backward(inputs, weight)
        return inputs @ weight.T + bias

    @staticmethod
    def backward(ctx, output_gradient):
        inputs, weight = ctx.saved_tensors
        gradient = torch.cat([(output_gradient.T @ inputs).flatten(), output_gradient.sum(0)])
        own_gradient = torch.empty(gradient.numel() // dist.get_world_size())
        dist.reduce_scatter_single(own_gradient, gradient)
        return output_gradient @ weight, own_gradient / dist.get_world_size(), None


def sharded_linear(inputs: torch.Tensor, shard: torch.Tensor, num_outputs: int) -> torch.Tensor:
    """Return `inputs @ weight.T + bias`, and gather both only to compute with them."""
    return ShardedLinear.apply(inputs, shard, num_outputs)
