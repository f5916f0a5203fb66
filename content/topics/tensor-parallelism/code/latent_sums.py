"""Keys made from a shared latent: where backward sums decides which gradients are partial.

Two tensor ranks have a head each, and whole the weights of a latent, from which each makes its own
key and value, and of a part of the key for the position, which both use as it is.

torchrun --nproc-per-node 2 latent_sums.py
"""

import time

import torch
import torch.distributed as dist
from torch.nn.functional import scaled_dot_product_attention


def summed(gradient):
    """Over the ranks, in backward."""
    dist.all_reduce(gradient := gradient.clone())
    return gradient


def attention(weights, place=None):
    """The sum over the heads whose weights these are; backward sums at a place, if there is one."""
    normal = inputs.view_as(inputs)
    latent = normal @ weights["latent"]
    if place is not None:
        {"input": normal, "latent": latent}[place].register_hook(summed)
    key, value = latent @ weights["key"], latent @ weights["value"]
    key = torch.cat([key, (normal @ weights["position"]).expand(len(key), -1, -1)], -1)
    heads = scaled_dot_product_attention(normal @ weights["query"], key, value)
    return (heads @ weights["output"]).sum(0)


dist.init_process_group("gloo")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
rank, size = dist.get_rank(), dist.get_world_size()
shapes = {"latent": (1, 32, 8), "position": (1, 32, 4), "query": (size, 32, 12)}
shapes |= {"key": (size, 8, 8), "value": (size, 8, 8), "output": (size, 8, 32)}
whole = {name: (torch.randn(shape) / 4).requires_grad_() for name, shape in shapes.items()}
inputs, arriving = torch.randn(16, 32, requires_grad=True), torch.randn(16, 32)
attention(whole).backward(arriving)  # the gradient of the outputs
facts = {}
for place in ("input", "latent"):
    own = {name: one[rank % len(one)][None] for name, one in whole.items()}
    ours = {name: part.detach().clone().requires_grad_() for name, part in own.items()}
    attention(ours, place).backward(arriving)
    for name in ("latent", "position"):
        true, gradient = whole[name].grad, ours[name].grad.clone()
        for told in ("alone", "summed"):
            facts[f"at_{place}_{name}_{told}"] = ((gradient - true).norm() / true.norm()).item()
            dist.all_reduce(gradient)
if rank == 0:
    for name, error in facts.items():
        print(f"{name:>25}: relative error {error:.1e}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
report = [facts]
