"""Documents packed into one sequence: who sees what, and how much each context rank computes.

torchrun --nproc-per-node 1 packed_documents.py
"""

import torch
from torch.nn.functional import scaled_dot_product_attention

RANKS, WIDTH, TOKENS = 4, 16, 128
LENGTHS = [64, 16, 8, 40]  # together TOKENS, and each a multiple of 2 * RANKS


def head_tail(tokens):
    """Each rank's tokens: of 2 * RANKS blocks, one and the one as far from the other end."""
    blocks = tokens.chunk(2 * RANKS)
    return [torch.cat([blocks[n], blocks[-1 - n]]) for n in range(RANKS)]


torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
document = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
tokens = torch.arange(TOKENS)
causal = tokens[:, None] >= tokens
within = causal & (document[:, None] == document)
query, key, value = torch.randn(3, TOKENS, WIDTH)
packed = (one.split(LENGTHS) for one in (query, key, value))
parts = zip(*packed, strict=True)
alone = torch.cat([scaled_dot_product_attention(*one, is_causal=True) for one in parts])
facts = {}
for name, mask in {"causal": causal, "within": within}.items():
    output = scaled_dot_product_attention(query, key, value, attn_mask=mask)
    facts[f"{name}_difference"] = (output - alone).abs().max().item()
    facts[f"{name}_scores"] = mask.sum().item()
    print(f"{name}: difference from documents alone {facts[f'{name}_difference']:.1e}")

of_documents = [head_tail(tokens[document == n]) for n in range(len(LENGTHS))]
ways = {
    "contiguous": tokens.chunk(RANKS),
    "head_tail": head_tail(tokens),
    "each_document": [torch.cat(parts) for parts in zip(*of_documents, strict=True)],
}
for way, owned in ways.items():
    scores = [within[own].sum().item() for own in owned]
    seen = [within[own].any(0) for own in owned]  # keys that some query of the rank needs
    remote = max((one.sum() - one[own].sum()).item() for one, own in zip(seen, owned, strict=True))
    facts |= {f"{way}_rank_{n}": number for n, number in enumerate(scores)}
    facts |= {f"{way}_slowest": max(scores) * RANKS / sum(scores), f"{way}_remote": remote}
    print(f"{way}: scores of each rank {scores}, keys from others {remote} at most")
report = [facts]
