"""Attention over blocks of keys: a maximum, a sum and an output go from block to block.

torchrun --nproc-per-node 1 attention_in_blocks.py
"""

import torch
from torch.nn.functional import scaled_dot_product_attention

TOKENS, BLOCK, WIDTH = 256, 16, 32
LEAST = torch.finfo(torch.float64).min
NAMES = ["scores", "largest", "factor", "weights", "sum", "output"]


def in_blocks(query, key, value, mask, block, *, rescales=True, order=1, dtype=torch.float64):
    """The output, and what is known after each block; only a block's scores exist at a time."""
    largest = torch.full(query.shape[:1], LEAST)  # finite: a mask may hide the whole first block
    total, output = torch.zeros(len(query)), torch.zeros(len(query), value.shape[1])
    known = []
    for some in torch.arange(len(key)).split(block)[::order]:
        scores = (query @ key[some].T).masked_fill(~mask[:, some], -torch.inf)
        new_largest = torch.maximum(largest, scores.amax(1))
        weights = (scores - new_largest[:, None]).exp()
        factor = (largest - new_largest).exp() if rescales else torch.ones_like(total)
        total = total * factor + weights.sum(1)
        output = (output * factor[:, None] + weights @ value[some]).to(dtype).double()
        largest = new_largest
        known.append((scores, largest, factor, weights, total, output))
    return output / total[:, None], known


torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

# One query of width 1, so that its scores are the keys.
query = torch.ones(1, 1)
key = torch.tensor([1.0, 0.0, 3.0, 2.0, 1.0, 4.0])[:, None]
value = torch.tensor([2.0, 6.0, 4.0, 0.0, 8.0, 2.0])[:, None]
result, known = in_blocks(query, key, value, torch.ones(1, 6, dtype=torch.bool), block=2)
facts = {"result": result.item()}
for n, numbers in enumerate(known):
    for name, number in zip(NAMES, numbers, strict=True):
        facts[f"{name}_{n}"] = number.flatten().tolist()
    print(f"block {n}:", *(f"{name} {facts[f'{name}_{n}'][0]:.3f}" for name in NAMES[1:]))
facts["whole"] = scaled_dot_product_attention(query, key, value, scale=1.0).item()
print(f"result {facts['result']:.6f}, of all keys at once {facts['whole']:.6f}")

query, key, value = torch.randn(3, TOKENS, WIDTH)
query, mask = query / WIDTH**0.5, torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
true = scaled_dot_product_attention(query, key, value, is_causal=True, scale=1.0)
ways = {"rescaled": {}, "last_first": {"order": -1}, "not_rescaled": {"rescales": False}}
ways |= {str(one)[6:]: {"dtype": one} for one in (torch.float32, torch.bfloat16)}
for way, how in ways.items():
    ours = in_blocks(query, key, value, mask, BLOCK, **how)[0]
    facts[way] = ((ours - true).norm() / true.norm()).item()
    print(f"{way:>12}: relative error {facts[way]:.1e}")
facts["rounded_once"] = ((true.bfloat16() - true).norm() / true.norm()).item()
print(f"the right output, rounded to bfloat16 once: {facts['rounded_once']:.1e}")
report = [facts]
