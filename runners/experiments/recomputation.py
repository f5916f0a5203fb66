"""Gradient checkpointing: activations that are dropped in forward and computed again in backward.

A stack of equal layers with a batch so large that activations, not parameters, fill the memory.
The same training once with every activation kept, and once with only those at the borders of
segments kept: its peak, its loss, and its time for a step.

    python -m runners run recomputation
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint_sequential

from proofbook.runners.api import Count, Declaration, Factor, Setting, closed_form
from proofbook.runners.closed_forms.shape import FLOAT_BYTES
from proofbook.runners.closed_forms.training_settings import StackSettings
from proofbook.runners.training.rank import Rank
from proofbook.runners.training.steps import sgd_steps, stack_for, step_on_samples


def kept(rank: Rank[Settings]) -> None:
    """Keep every activation until backward needs it."""
    _train(rank, lambda stack, features: stack(features))


def recomputed(rank: Rank[Settings]) -> None:
    """Keep what lies between segments; backward computes the inside of each again."""
    parts = rank.settings.num_segments
    _train(rank, lambda stack, x: checkpoint_sequential(stack, parts, x, use_reentrant=False))


def _train(rank: Rank[Settings], forward: Callable[[nn.Sequential, Tensor], Tensor]) -> None:
    stack = stack_for(rank)
    loss = sgd_steps(rank, stack, step_on_samples(rank, partial(forward, stack)))
    rank.epoch(1, loss=loss, num_samples=rank.settings.batch_size)


QUESTION = "Must training keep every intermediate result until backward needs it?"


class Settings(StackSettings):
    """A stack of equal layers, cut into segments; one keeps every activation."""

    num_layers: Count = 16
    width: Count = 256
    batch_size: Count = 2048
    num_steps: Count = 10
    learning_rate: Factor = 0.1
    num_segments: Count = 1
    equal_parts = (("num_layers", "num_segments"),)

    def forced(self) -> dict[str, Setting]:
        """What keeps every activation has one segment."""
        return {"num_segments": 1} if self.strategy == "kept" else {}

    @closed_form
    def activation_bytes(self) -> int:
        """What one layer puts out."""
        return FLOAT_BYTES * self.batch_size * self.width


RUNS = {
    "kept": Declaration("kept", 1, Settings()),
    "recomputed": Declaration("recomputed", 1, Settings(num_segments=4)),
}
TRIED_WITH = {"*": {"num_steps": 5}}
