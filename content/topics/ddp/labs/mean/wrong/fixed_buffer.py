# fails: sends
"""A bucket is a buffer of `cap_bytes`, made once; a gradient that is larger is reduced alone."""

import torch
import torch.distributed as dist


def average(gradients: list[torch.Tensor], cap_bytes: int, world_size: int) -> None:
    """Replace each gradient by its mean over all ranks, in place."""
    buffer = torch.zeros(cap_bytes // gradients[0].element_size())
    filled: list[torch.Tensor] = []
    for gradient in gradients:
        num_filled = sum(one.numel() for one in filled)
        if num_filled + gradient.numel() > buffer.numel():
            flush(buffer, filled, world_size)
            filled = []
        if gradient.numel() > buffer.numel():
            dist.all_reduce(gradient)
            gradient.div_(world_size)
        else:
            filled.append(gradient)
    flush(buffer, filled, world_size)


def flush(buffer: torch.Tensor, filled: list[torch.Tensor], world_size: int) -> None:
    """Average the gradients with which the buffer is filled."""
    if not filled:
        return
    parts = buffer.split(
        [one.numel() for one in filled] + [buffer.numel() - sum(one.numel() for one in filled)]
    )
    for gradient, part in zip(filled, parts, strict=False):
        part.copy_(gradient.flatten())
    dist.all_reduce(buffer)
    for gradient, part in zip(filled, parts, strict=False):
        gradient.copy_(part.view_as(gradient) / world_size)
