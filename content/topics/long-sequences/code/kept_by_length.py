"""What forward keeps for backward, by the length of a sequence, and which remedy takes which term.

torchrun --nproc-per-node 1 kept_by_length.py
"""

from functools import partial

import torch
from torch.nn.functional import cross_entropy, rms_norm, scaled_dot_product_attention, silu
from torch.utils.checkpoint import checkpoint

MAYBE = lambda part, *inputs: part(*inputs), partial(checkpoint, use_reentrant=False)
TOKENS, WIDTH, HEADS, LAYERS, VOCABULARY, CHUNK = 2048, 64, 2, 4, 6144, 64


def attention(query, key, value, stores_scores):
    if not stores_scores:
        return scaled_dot_product_attention(query, key, value, is_causal=True)
    scores = query @ key.mT / query.shape[3] ** 0.5
    return (scores + torch.full(scores.shape[2:], -torch.inf).triu(1)).softmax(-1) @ value


def block(hidden, weights, stores_scores):
    parts = (rms_norm(hidden, [WIDTH]) @ weights[0]).unflatten(1, (1, 3, HEADS, -1))
    heads = attention(*parts.permute(2, 1, 3, 0, 4), stores_scores)
    hidden = hidden + heads[0].transpose(0, 1).flatten(1) @ weights[1]
    return hidden + silu(rms_norm(hidden, [WIDTH]) @ weights[2]) @ weights[3]


def loss_of(hidden):
    return cross_entropy(hidden @ LAST, torch.zeros(len(hidden), dtype=torch.long))


def kept(tokens, stores_scores=0, recomputes=0, in_chunks=0):
    """Bytes of what is as large as a layer's scores, or as all logits, and of the rest."""
    found, terms = {}, {"scores": 0, "logits": 0, "others": 0}
    with torch.autograd.graph.saved_tensors_hooks(
        lambda one: found.setdefault(one.untyped_storage().data_ptr(), one), lambda one: one
    ):
        hidden = torch.randn(tokens, WIDTH, requires_grad=True)
        for one in WEIGHTS:
            hidden = MAYBE[recomputes](block, hidden, one, stores_scores)
        for some in hidden.split(CHUNK if in_chunks else tokens):
            _ = MAYBE[in_chunks](loss_of, some)
    named = {HEADS * tokens**2: "scores", tokens * VOCABULARY: "logits"}
    for address in found.keys() - ADDRESSES:
        nbytes = found[address].untyped_storage().nbytes()
        terms[named.get(nbytes // 4, "others")] += nbytes
    return terms


SHAPES = [(WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)]
WEIGHTS = [[torch.randn(one).requires_grad_() for one in SHAPES] for _ in range(LAYERS)]
LAST = torch.randn(WIDTH, VOCABULARY).requires_grad_()
ADDRESSES = {weight.data_ptr() for weights in [*WEIGHTS, [LAST]] for weight in weights}
WAYS = {"stored": [1], "fused": [], "recomputed": [0, 1], "in_chunks": [0, 1, 1]}
facts = {}
for tokens in (TOKENS // 4, TOKENS // 2, TOKENS):
    for way, how in WAYS.items():
        terms = kept(tokens, *how)
        facts |= {f"{way}_{tokens}_{term}_bytes": number for term, number in terms.items()}
        facts[f"{way}_{tokens}_bytes"] = sum(terms.values())
        print(f"{tokens} tokens, {way}, MiB:", *(f"{t} {n / 2**20:.2f}" for t, n in terms.items()))
report = [facts]
