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

SAMPLES, TOKENS, WIDTH, HEAD = 2, 16, 32, 8
QUERIES, KEYS = 4, 2  # heads
RANKS_PER_KEY = QUERIES // KEYS


def build():
    torch.manual_seed(0)
    shapes = {
        "query": (QUERIES, WIDTH, HEAD), "key": (KEYS, WIDTH, HEAD // 2),
        "shared key": (1, WIDTH, HEAD // 2), "value": (KEYS, WIDTH, HEAD),
        "output": (QUERIES, HEAD, WIDTH),
    }  # fmt: skip
    weights = {name: torch.randn(shape).double() for name, shape in shapes.items()}
    return weights, torch.randn(SAMPLES, TOKENS, WIDTH).double()


def attention(weights, inputs):
    """The sum over the heads whose weights these are."""
    heads = {
        name: torch.einsum("btw,nwh->bnth", inputs, weights[name])
        for name in ("query", "key", "shared key", "value")
    }
    key, value = (
        heads[name].repeat_interleave(len(weights["query"]) // len(weights["key"]), 1)
        for name in ("key", "value")
    )
    key = torch.cat([key, heads["shared key"].expand_as(key)], -1)
    of_heads = scaled_dot_product_attention(heads["query"], key, value, is_causal=True)
    return torch.einsum("bnth,nhw->btw", of_heads, weights["output"])


def own(rank, name):
    """Which heads of a weight a rank has."""
    if name == "shared key":
        return slice(None)
    head = rank if name in ("query", "output") else rank // RANKS_PER_KEY
    return slice(head, head + 1)


def summed(tensor, group=None):
    total = tensor.clone()
    dist.all_reduce(total, group=group)
    return total


def distance(gradient, true):
    """The relative error, of the rank with the largest."""
    error = (gradient - true).norm() / true.norm()
    dist.all_reduce(error, dist.ReduceOp.MAX)
    return error.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    # Every rank takes part in creating every group.
    pairs = [dist.new_group([first, first + 1]) for first in range(0, QUERIES, RANKS_PER_KEY)]
    groups = {"key": pairs[rank // RANKS_PER_KEY], "value": pairs[rank // RANKS_PER_KEY]}
    groups["shared key"] = dist.group.WORLD

    weights, inputs = build()
    true = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    outputs = attention(true, inputs)
    arriving = torch.randn(outputs.shape, dtype=torch.float64)  # the gradient of the outputs
    outputs.backward(arriving)
    ours = {name: weight[own(rank, name)].clone() for name, weight in weights.items()}
    ours = {name: weight.requires_grad_() for name, weight in ours.items()}
    part = attention(ours, inputs)
    part.backward(arriving)  # backward through the sum of the outputs is the identity
    report = {"outputs": distance(summed(part.detach()), outputs.detach())}
    for name, group in groups.items():
        expected = true[name].grad[own(rank, name)]
        kind = name.replace(" ", "_")
        report[f"{kind}_alone"] = distance(ours[name].grad, expected)
        report[f"{kind}_summed"] = distance(summed(ours[name].grad, group), expected)
    report["largest_summed"] = max(report[name] for name in report if name.endswith("summed"))
    if rank == 0:
        for name, error in report.items():
            print(f"{name:>17}: relative error {error:.1e}")
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()
    return [report]


if __name__ == "__main__":
    report = main()
