"""Causal attention to a divided sequence, of which each rank takes some heads.

python -m runners lab exchanged_heads
"""

from torch import Tensor


def attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return the outputs of causal attention to the whole sequence, for this rank's tokens.

    `queries` are (tokens of this rank, heads, width), `keys` and `values` (tokens of this rank, key
    heads, width). Rank r has the tokens from r × (tokens of a rank) on. Consecutive query heads
    share a key head, and consecutive ranks, too. Scores are divided by the root of the width.
    """
    raise NotImplementedError("write attention here")
