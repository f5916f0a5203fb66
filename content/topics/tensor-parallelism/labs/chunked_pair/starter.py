"""A column-row pair whose products overlap with transfers around a ring.

python -m runners lab chunked_pair
"""

from collections.abc import Callable

from torch import Tensor


def pair(
    tokens: Tensor,
    columns: Tensor,
    rows: Tensor,
    start: Callable[[Tensor], Callable[[], Tensor]],
    multiply: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Return this rank's tokens of `gelu(X A) B`.

    `tokens` are (tokens of this rank, width), `columns` (width, hidden features of this rank),
    `rows` (these features, width). Communicate by `start` only, and multiply by `multiply`.
    """
    raise NotImplementedError("write pair here")
