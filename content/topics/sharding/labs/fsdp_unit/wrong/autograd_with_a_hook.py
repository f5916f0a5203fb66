# fails: peak
"""Let autograd differentiate the layer, and scatter the gradient when it is complete."""

import torch
import torch.distributed as dist


def sharded_linear(inputs: torch.Tensor, shard: torch.Tensor, num_outputs: int) -> torch.Tensor:
    """Return `inputs @ weight.T + bias`, and gather both only to compute with them."""
    whole = torch.empty(shard.numel() * dist.get_world_size())
    dist.all_gather_single(whole, shard.detach())
    whole.requires_grad_()

    def scatter(_):
        own_gradient = torch.empty_like(shard)
        dist.reduce_scatter_single(own_gradient, whole.grad)
        shard.grad = own_gradient / dist.get_world_size()
        whole.grad = None

    whole.register_post_accumulate_grad_hook(scatter)
    weight, bias = whole[:-num_outputs], whole[-num_outputs:]
    return torch.nn.functional.linear(inputs, weight.view(num_outputs, -1), bias)
