# fails: sends
"""Gather the weight for its product, the bias for its sum, and each again in backward."""

import torch
import torch.distributed as dist


class ShardedLinear(torch.autograd.Function):
    """A linear layer as one operation of autograd."""

    @staticmethod
    def forward(ctx, inputs, shard, num_outputs):
        ctx.save_for_backward(inputs, shard)
        ctx.num_outputs = num_outputs
        outputs = inputs @ gather(shard)[:-num_outputs].view(num_outputs, -1).T
        return outputs + gather(shard)[-num_outputs:]

    @staticmethod
    def backward(ctx, output_gradient):
        inputs, shard = ctx.saved_tensors
        weight = gather(shard)[: -ctx.num_outputs].view(ctx.num_outputs, -1)
        weight_gradient = output_gradient.T @ inputs
        gradient = torch.cat([weight_gradient.flatten(), output_gradient.sum(0)])
        own_gradient = torch.empty_like(shard)
        dist.reduce_scatter_single(own_gradient, gradient)
        return output_gradient @ weight, own_gradient / dist.get_world_size(), None


def gather(shard):
    flat = torch.empty(shard.numel() * dist.get_world_size())
    dist.all_gather_single(flat, shard)
    return flat


def sharded_linear(inputs: torch.Tensor, shard: torch.Tensor, num_outputs: int) -> torch.Tensor:
    """Return `inputs @ weight.T + bias`, and gather both only to compute with them."""
    return ShardedLinear.apply(inputs, shard, num_outputs)
