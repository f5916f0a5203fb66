"""A model cut by layers, a stage on each rank: the way of a batch through the stages and back."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from proofbook.runners.training.rank import Rank


def through_stage(
    rank: Rank[Any], run: Callable[[Tensor], Tensor], own: Tensor, shape: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Receive an activation, run this rank's stage, and send its result on: (activation, result).

    The rank's number is that of its stage; `run` is its layers, on the last stage perhaps with the
    loss. The first stage takes `own`; `shape` is of what every other takes.
    """
    taken = own
    if rank.rank > 0:
        taken = rank.receive(shape, source=rank.rank - 1)
        taken.requires_grad_(torch.is_grad_enabled())
    with rank.phase("forward"):  # a hook would take sending for a part of it
        given = run(taken)
    if rank.rank < rank.world_size - 1:
        rank.send(given.detach(), to=rank.rank + 1)
    return taken, given


def back_through_stage(rank: Rank[Any], taken: Tensor, given: Tensor) -> None:
    """Receive the gradient of `given`, differentiate the stage, and send that of `taken` back."""
    gradient = None
    if rank.rank < rank.world_size - 1:
        gradient = rank.receive(given.shape, source=rank.rank + 1)
    with rank.phase("backward"):
        given.backward(gradient)
    if rank.rank > 0:
        assert taken.grad is not None
        rank.send(taken.grad, to=rank.rank - 1)
