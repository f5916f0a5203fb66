"""A two-layer MLP of which each rank computes some of the hidden features.

python -m runners lab tensor_mlp
"""

import torch


def mlp(
    inputs: torch.Tensor,
    first: torch.Tensor,
    first_bias: torch.Tensor,
    second: torch.Tensor,
    second_bias: torch.Tensor,
) -> torch.Tensor:
    """Return `gelu(inputs @ first + first_bias) @ second + second_bias` of the whole weights.

    `inputs`, `(tokens, width)`, and `second_bias`, `(width,)`, are whole and the same on every
    rank. Of the others a rank has its own part: `first` is `(width, hidden / n)`, some columns;
    `first_bias` is `(hidden / n,)`; `second` is `(hidden / n, width)`, the rows that belong to
    them. `gelu` is `torch.nn.functional.gelu`. The outputs are whole on every rank.

    After `backward()`, each rank has the gradients of its parts, and the whole gradients of
    `inputs` and `second_bias`. The caller uses `inputs` elsewhere as well. Use `dist.all_reduce`.
    """
    raise NotImplementedError("write mlp here")
