"""Layers that read their past through a state or a window, on context ranks in two orders.

torchrun --nproc-per-node 4 state_of_shards.py
"""

import time

import torch
import torch.distributed as dist
from torch.nn.functional import normalize, scaled_dot_product_attention

TOKENS, WIDTH, REACH = 64, 8, 4

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
features = torch.randn(TOKENS, 3, WIDTH)  # for queries, keys and values
decays, rates = torch.rand(2, TOKENS, 1, 1)


def spans(places, before):
    """What each token sees: itself, and the last ones before it; the halo is what lies before."""
    rows = torch.cat([before, features[places]])
    return rows.unfold(0, REACH, 1).permute(1, 0, 3, 2), rows[1 - REACH :]


def convolution(places, before):
    seen, halo = spans(places, before)
    return (seen[0] * torch.linspace(-1, 1, REACH)[:, None]).sum(1), halo


def window(places, before):
    (_, keys, values), halo = spans(places, before)
    is_token = keys.abs().sum(2)[:, None] > 0  # rows of zeros lie before the sequence
    return scaled_dot_product_attention(features[places, :1], keys, values, is_token)[:, 0], halo


def delta(places, state):
    """A gated delta rule: the state fades, then has the value in place of what a key found."""
    outputs = []
    for place in places:
        query, key, value = normalize(features[place], dim=1)[:, None]
        state = decays[place] * state
        state = state + rates[place] * key.T @ (value - key @ state)
        outputs.append(query @ state)
    return torch.cat(outputs), state


def largest_error(layer, state, shards):
    """Each shard begins with what the one before it has left."""
    error = torch.zeros(())
    for owner, places in shards:
        if owner == rank:
            outputs, state = layer(places, state)
            error = torch.maximum(error, (outputs - true[places]).abs().max())
        dist.broadcast(state := state.contiguous(), owner)  # to the next owner would do
    dist.all_reduce(error, dist.ReduceOp.MAX)
    return error.item()


blocks, report = torch.arange(TOKENS).chunk(2 * size), {}
WAYS = {
    "contiguous": [(i, torch.cat(blocks[2 * i : 2 * i + 2])) for i in range(size)],
    "head_tail_by_rank": [(i, torch.cat([blocks[i], blocks[-1 - i]])) for i in range(size)],
    "head_tail_by_block": [(min(i, 2 * size - 1 - i), block) for i, block in enumerate(blocks)],
}
for layer in (convolution, window, delta):
    begin = torch.zeros(WIDTH, WIDTH) if layer is delta else torch.zeros(REACH - 1, 3, WIDTH)
    true, _ = layer(torch.arange(TOKENS), begin)
    for way, shards in WAYS.items():
        report[f"{layer.__name__}_{way}"] = error = largest_error(layer, begin, shards)
        if rank == 0:
            print(f"{layer.__name__:>11}, {way:>18}: largest error {error:.2g}")
report = [report]
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
