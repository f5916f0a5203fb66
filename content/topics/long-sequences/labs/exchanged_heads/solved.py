"""Ranks exchange tokens for heads, and get the key heads of their own queries alone."""

import torch.distributed as dist
from torch import Tensor
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.nn.functional import scaled_dot_product_attention


def exchanged(parts: Tensor) -> Tensor:
    """Part r of each rank on rank r, in the order of ranks; the same in backward."""
    return all_to_all_single_autograd(parts.contiguous(), None, None, dist.group.WORLD)


def own_heads(vectors: Tensor) -> Tensor:
    """The rank's heads (heads of this rank, all tokens, width) of those of its tokens."""
    tokens, heads, width = vectors.shape
    size = dist.get_world_size()
    by_rank = vectors.view(tokens, size, heads // size, width).transpose(0, 1)
    return exchanged(by_rank).reshape(size * tokens, heads // size, width).transpose(0, 1)


def attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return the outputs of causal attention to the whole sequence, for this rank's tokens."""
    size = dist.get_world_size()
    ranks_of_head = size // keys.shape[1]
    heads = own_heads(queries)
    keys, values = (own_heads(one.repeat_interleave(ranks_of_head, 1)) for one in (keys, values))
    outputs = scaled_dot_product_attention(heads, keys, values, is_causal=True, enable_gqa=True)
    by_rank = outputs.transpose(0, 1).reshape(size, len(queries), len(heads), -1)
    return exchanged(by_rank).transpose(0, 1).reshape(queries.shape)
