"""Gather a layer for forward and again for backward, and scatter its gradient."""

import torch
import torch.distributed as dist


class ShardedLinear(torch.autograd.Function):
    """A linear layer as one operation of autograd, which saves the shard, not the parameters."""

    @staticmethod
    def forward(ctx, inputs, shard, num_outputs):
        ctx.save_for_backward(inputs, shard)
        ctx.num_outputs = num_outputs
        weight, bias = gather(shard, num_outputs)
        return inputs @ weight.T + bias  # both are freed on return

    @staticmethod
    def backward(ctx, output_gradient):
        inputs, shard = ctx.saved_tensors
        weight, _ = gather(shard, ctx.num_outputs)
        input_gradient = output_gradient @ weight
        weight_gradient = output_gradient.T @ inputs
        bias_gradient = output_gradient.sum(0)
        gradient = torch.cat([weight_gradient.flatten(), bias_gradient])  # laid out as the shards
        # Without a copy, a view of `gradient` would keep all of it in memory until the update.
        own_gradient = torch.empty_like(shard)
        dist.reduce_scatter_single(own_gradient, gradient)
        own_gradient /= dist.get_world_size()  # each rank averaged its loss over its own samples
        return input_gradient, own_gradient, None


def gather(shard, num_outputs):
    """Return the whole weight and bias, as views of one flat tensor."""
    flat = torch.empty(shard.numel() * dist.get_world_size())
    dist.all_gather_single(flat, shard)
    return flat[:-num_outputs].view(num_outputs, -1), flat[-num_outputs:]


def sharded_linear(inputs: torch.Tensor, shard: torch.Tensor, num_outputs: int) -> torch.Tensor:
    """Return `inputs @ weight.T + bias`, and gather both only to compute with them."""
    return ShardedLinear.apply(inputs, shard, num_outputs)
