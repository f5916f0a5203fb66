# fails: same
"""All layers are gathered into one buffer, so that memory does not grow with their number."""

import torch
import torch.distributed as dist

buffers = {}


class ShardedLinear(torch.autograd.Function):
    """A linear layer as one operation of autograd."""

    @staticmethod
    def forward(ctx, inputs, shard, num_outputs):
        size = shard.numel() * dist.get_world_size()
        if size not in buffers:
            buffers[size] = torch.empty(size)
        dist.all_gather_single(buffers[size], shard)
        weight = buffers[size][:-num_outputs].view(num_outputs, -1)
        ctx.save_for_backward(inputs, weight)
        return inputs @ weight.T + buffers[size][-num_outputs:]

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
