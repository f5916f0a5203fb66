"""Attention with fewer keys than ranks: gradients of weights that several ranks share.

Four tensor ranks have a query head each. Two of them share each head of keys and values, as under
grouped queries; all share a part of the key, as the one for positions in multi-head latent
attention. A shared weight gets the gradient of the rank's own queries only.

torchrun --nproc-per-node 4 shared_keys.py
"""

import time

import torch
import torch.distributed as dist
from torch.nn.functional import scaled_dot_product_attention

WIDTH, HEAD = 32, 8
HEADS = {"query": 4, "key": 2, "value": 2, "shared_key": 1, "output": 4}


def attention(weights, inputs):
    """The sum over the heads whose weights these are."""
    query, key, value, shared = (
        torch.einsum("btw,nwh->bnth", inputs, weights[name])
        for name in ("query", "key", "value", "shared_key")
    )
    key = torch.cat([key, shared.expand_as(key)], -1)
    heads = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    return torch.einsum("bnth,nwh->btw", heads, weights["output"])


def relative_error(gradient, true, group=None):
    """That of the rank with the largest; with a group, of the sum over its ranks."""
    gradient = gradient.clone()
    if group is not None:
        dist.all_reduce(gradient, group=group)
    error = (gradient - true).norm() / true.norm()
    dist.all_reduce(error, dist.ReduceOp.MAX)
    return error.item()


dist.init_process_group("gloo")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
rank, size = dist.get_rank(), dist.get_world_size()
pairs = dist.new_group([0, 1]), dist.new_group([2, 3])  # every rank creates every group
groups = {"key": pairs[rank // 2], "value": pairs[rank // 2], "shared_key": dist.group.WORLD}
whole, ours = {}, {}
for name, num in HEADS.items():
    width = HEAD // 2 if name in ("key", "shared_key") else HEAD
    whole[name] = (torch.randn(num, WIDTH, width) / 4).requires_grad_()
    first = rank * num // size  # the head that this rank has
    ours[name] = whole[name][first : first + 1].detach().requires_grad_()
inputs, arriving = torch.randn(2, 2, 16, WIDTH)  # the second is the gradient of the outputs
outputs, part = attention(whole, inputs), attention(ours, inputs)
outputs.backward(arriving)
part.backward(arriving)  # backward through the sum of the outputs is the identity
facts = {"outputs": relative_error(part.detach(), outputs.detach(), dist.group.WORLD)}
for name, group in groups.items():
    first = rank * HEADS[name] // size
    true = whole[name].grad[first : first + 1]
    facts[f"{name}_alone"] = relative_error(ours[name].grad, true)
    facts[f"{name}_summed"] = relative_error(ours[name].grad, true, group)
if rank == 0:
    for name, error in facts.items():
        print(f"{name:>17}: relative error {error:.1e}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
alone, summed = ([facts[f"{name}_{way}"] for name in groups] for way in ("alone", "summed"))
report = [facts | {"smallest_alone": min(alone), "largest_summed": max(summed)}]
