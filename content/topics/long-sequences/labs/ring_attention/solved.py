"""Keys and values travel forwards around a ring, and their gradients backwards."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class Pass(torch.autograd.Function):
    """Send to the next rank; in backward, send the gradient to the previous one."""

    @staticmethod
    def forward(_: Any, tensor: Tensor) -> Tensor:
        """Receive what the previous rank had."""
        return moved(tensor, 1)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        """Receive the gradient of what was sent."""
        return moved(gradient.contiguous(), -1)


def moved(tensor: Tensor, step: int) -> Tensor:
    """What the rank `step` places before sends, while this rank sends as far ahead."""
    rank, size = dist.get_rank(), dist.get_world_size()
    received = torch.empty_like(tensor)
    sending = dist.isend(tensor, (rank + step) % size)
    dist.recv(received, (rank - step) % size)
    sending.wait()
    return received


def part(queries: Tensor, keys: Tensor, values: Tensor, hidden: Any) -> tuple[Tensor, Tensor]:
    """Attention to these keys but the hidden ones, and the log of the sum of its exponentials."""
    scores = queries @ keys.transpose(1, 2) / queries.shape[-1] ** 0.5
    scores = scores.masked_fill(torch.as_tensor(hidden), -1e9)
    log_sum = scores.logsumexp(-1, keepdim=True)
    return (scores - log_sum).exp() @ values, log_sum


def merged(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Attention to the keys of both parts."""
    log_sum = torch.logaddexp(one[1], other[1])
    outputs = [output * (own - log_sum).exp() for output, own in (one, other)]
    return outputs[0] + outputs[1], log_sum


def attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return the outputs of causal attention to the whole sequence, for this rank's tokens."""
    rank, size = dist.get_rank(), dist.get_world_size()
    half = queries.shape[1] // 2
    front, back = queries.split(half, 1)
    moving = torch.stack([keys, values])
    later = torch.ones(half, 2 * half).triu(1 + half).bool()
    of_front = part(front, *moving[:, :, :half], later[:, half:])
    of_back = part(back, *moving, later)
    for turn in range(1, size):
        moving = Pass.apply(moving)
        if turn <= rank:  # from a rank before this one: its front block precedes all queries
            of_front = merged(of_front, part(front, *moving[:, :, :half], False))
            of_back = merged(of_back, part(back, *moving[:, :, :half], False))
        else:  # both its blocks precede the back block, and no key precedes the front block
            of_back = merged(of_back, part(back, *moving, False))
    return torch.cat([of_front[0], of_back[0]], 1)
