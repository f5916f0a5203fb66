"""Cross-entropy of logits that are computed chunk by chunk.

python -m runners lab chunked_loss
"""

from torch import Tensor


def loss(hidden: Tensor, head: Tensor, labels: Tensor, chunk: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss and its gradients, with respect to `hidden` and `head`, in float32.

    `hidden` are (tokens of this rank, width), `head` (words, width), both bfloat16. `labels` are
    int64 of shape (tokens of this rank); -100 does not count. Logits are `hidden @ head.T`.
    """
    raise NotImplementedError("write loss here")
