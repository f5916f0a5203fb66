"""Weights that are fused into one, divided over two ranks: by `chunk`, and each weight by itself.

A gated MLP often has its gates and what they multiply in one weight, attention its queries, keys
and values. By `chunk`, the first rank gets all gates, or all queries and half of the keys.

torchrun --nproc-per-node 2 fused_parts.py
"""

import time

import torch
import torch.distributed as dist
from torch.nn.functional import scaled_dot_product_attention, silu

WIDTH, HIDDEN, HEADS, TOKENS = 32, 64, 4, 16


def gated(inputs, fused, output):
    gate, up = (inputs @ fused.T).chunk(2, -1)
    return (silu(gate) * up) @ output.T


def attention(inputs, fused, output):
    """By heads, all of which have the same size."""
    features = (inputs @ fused.T).chunk(3, -1)
    heads = (of.unflatten(-1, (-1, WIDTH // HEADS)).transpose(0, 1) for of in features)
    result = scaled_dot_product_attention(*heads, is_causal=True)
    return result.transpose(0, 1).flatten(-2) @ output.T


def by_chunk(fused, num_parts, rank, size):
    return fused.chunk(size)[rank]


def each_by_itself(fused, num_parts, rank, size):
    return torch.cat([weight.chunk(size)[rank] for weight in fused.chunk(num_parts)])


dist.init_process_group("gloo")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
rank, size = dist.get_rank(), dist.get_world_size()
inputs, facts = torch.randn(TOKENS, WIDTH), {}
for layer, num_parts, features in ((gated, 2, HIDDEN), (attention, 3, WIDTH)):
    fused, output = torch.randn(num_parts * features, WIDTH) / 6, torch.randn(WIDTH, features) / 8
    true = layer(inputs, fused, output)
    for cut in (by_chunk, each_by_itself):
        outputs = layer(inputs, cut(fused, num_parts, rank, size), output.chunk(size, 1)[rank])
        dist.all_reduce(outputs)
        name = f"{layer.__name__}_{cut.__name__}"
        facts[name] = ((outputs - true).norm() / true.norm()).item()
        if rank == 0:
            print(f"{name:>24}: relative error {facts[name]:.1e}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
report = [facts]
