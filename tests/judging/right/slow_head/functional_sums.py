"""PyTorch's differentiable collectives for the sum, and a hook for the gradient of the features."""

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_reduce
from torch.nn.functional import cross_entropy, gelu


def whole(tensor):
    return all_reduce(tensor.detach(), "sum", dist.group.WORLD) + (tensor - tensor.detach())


def train(weights, batches, learning_rate):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    own = {name: weight.clone() for name, weight in weights.items()}
    own["up"] = own["up"].chunk(world_size, 0)[rank].clone()
    own["down"] = own["down"].chunk(world_size, 1)[rank].clone()
    momenta, losses = {name: torch.zeros_like(one) for name, one in own.items()}, []
    for inputs, classes in batches:
        leaves = {name: one.requires_grad_() for name, one in own.items()}
        features = (inputs @ leaves["stem"].T).tanh()
        parted = features.view_as(features)
        parted.register_hook(lambda one: all_reduce(one, "sum", dist.group.WORLD) + 0)
        hidden = whole(gelu(parted @ leaves["up"].T) @ leaves["down"].T)
        loss = cross_entropy(hidden @ leaves["head"].T, classes)
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        losses.append(loss.item())
        for (name, one), gradient in zip(leaves.items(), gradients, strict=True):
            momenta[name] = 0.9 * momenta[name] + gradient
            own[name] = one.detach() - learning_rate * momenta[name]
    return own, losses
