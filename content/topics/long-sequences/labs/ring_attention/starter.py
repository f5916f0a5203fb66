"""Causal attention to a sequence that is divided over the ranks in head-tail order.

python -m runners lab ring_attention
"""

from torch import Tensor


def attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return the outputs of causal attention to the whole sequence, for this rank's tokens.

    All three are (heads, tokens of this rank, width of a head). Of 2n blocks of the sequence, rank
    r has block r, followed by block 2n - 1 - r. Scores are divided by the root of the width. Use
    `dist.isend`, `dist.recv` and their like between neighbours of the ring.
    """
    raise NotImplementedError("write attention here")
