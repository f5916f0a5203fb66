"""Context ranks gather keys and values of all heads, or the latents from which they are computed.

torchrun --nproc-per-node 2 latents_of_keys.py
"""

import time

import torch
import torch.distributed as dist
from torch.nn.functional import scaled_dot_product_attention

TOKENS, HEADS, WIDTH, ROTATED, LATENT = 32, 16, 16, 8, 64  # proportions of DeepSeek-V3's layers

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
queries = torch.randn(HEADS, TOKENS, WIDTH + ROTATED)
latents, rotated = torch.randn(TOKENS, LATENT), torch.randn(TOKENS, ROTATED)  # one for all heads
weight = torch.randn(LATENT, HEADS * 2 * WIDTH) / LATENT**0.5
own = torch.arange(TOKENS).chunk(size)[rank]


def gathered(*parts):
    """The parts of all ranks, as one tensor of all tokens."""
    part = torch.cat([part.flatten(1) for part in parts], 1)
    whole = [torch.empty_like(part) for _ in range(size)]
    dist.all_gather(whole, part)
    return torch.cat(whole)


def keys_and_values(latents, rotated):
    keys, values = (latents @ weight).unflatten(1, (HEADS, 2 * WIDTH)).chunk(2, 2)
    return torch.cat([keys, rotated[:, None].expand(-1, HEADS, -1)], 2), values


def attention(queries, keys, values, places):
    mask = torch.arange(TOKENS) <= places[:, None]
    keys, values = keys.transpose(0, 1), values.transpose(0, 1)
    return scaled_dot_product_attention(queries[:, places], keys, values, attn_mask=mask)


true = attention(queries, *keys_and_values(latents, rotated), torch.arange(TOKENS))[:, own]
both = gathered(*keys_and_values(latents[own], rotated[own]))
heads_keys, heads_values = both.split([HEADS * (WIDTH + ROTATED), HEADS * WIDTH], 1)
by_heads = heads_keys.unflatten(1, (HEADS, -1)), heads_values.unflatten(1, (HEADS, -1))
compressed = gathered(latents[own], rotated[own])
by_latents = keys_and_values(*compressed.split([LATENT, ROTATED], 1))
report = {"heads_bytes": both.nbytes, "latents_bytes": compressed.nbytes}
for way, pair in {"heads": by_heads, "latents": by_latents}.items():
    apart = (attention(queries, *pair, own) - true).abs().max()
    dist.all_reduce(apart, dist.ReduceOp.MAX)
    report[f"{way}_apart"] = apart.item()
    if rank == 0:
        print(f"{way:>7} gathered: {report[f'{way}_bytes']} B, largest difference {apart:.2g}")
report = [report]
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
