"""A layer of experts that are divided between the ranks.

python -m runners lab expert_layer
"""

from torch import Tensor


def layer(tokens: Tensor, choices: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
    """Return, for each token of this rank, the weighted sum of its experts' outputs.

    `tokens` are (tokens of this rank, width). `choices` (tokens, choices of a token) are numbers
    of experts, and `weights` their weights. `experts` (experts of this rank, width, width): rank r
    has those from r × (experts of a rank) on. An expert maps `rows` to `gelu(rows @ expert)`.
    """
    raise NotImplementedError("write layer here")
