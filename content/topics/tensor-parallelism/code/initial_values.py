"""Initial values of an MLP in four parts, drawn in three ways.

One process computes the parts of all ranks, one after the other.

torchrun --nproc-per-node 1 initial_values.py
"""

import torch
from torch import nn

RANKS, WIDTH, HIDDEN, SAMPLES = 4, 128, 512, 256


def weights(seed, hidden):
    """The weights of a linear layer before GELU, and of the one after it."""
    torch.manual_seed(seed)
    return nn.Linear(WIDTH, hidden, bias=False).weight, nn.Linear(hidden, WIDTH, bias=False).weight


def draw(way, rank):
    """A rank's columns of the first weight, and its rows of the second."""
    if way == "as_one_process":  # draw the whole weights (stored transposed), and take a part
        first, second = weights(0, HIDDEN)
        return first.chunk(RANKS, 0)[rank], second.chunk(RANKS, 1)[rank]
    return weights(rank if way == "by_shard" else 0, HIDDEN // RANKS)


torch.manual_seed(1)
inputs, facts = torch.randn(SAMPLES, WIDTH), {}
for way in ("as_one_process", "by_shard", "one_seed"):
    firsts, seconds = zip(*(draw(way, rank) for rank in range(RANKS)), strict=True)
    first, second = torch.cat(firsts, 0), torch.cat(seconds, 1)
    outputs = nn.functional.gelu(inputs @ first.T) @ second.T
    num_different = len(first.unique(dim=0))
    facts[f"{way}_second_variance"] = second.var().item()
    facts[f"{way}_output_variance"] = outputs.var().item()
    facts[f"{way}_num_different_features"] = num_different
    print(f"{way}: variance of the second weight {second.var():.5f}, of the outputs "
          f"{outputs.var():.3f}; {num_different} different hidden features")  # fmt: skip
report = [facts]
