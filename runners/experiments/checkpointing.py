"""Which activations to keep: all, those between segments of layers, or those between all layers.

A stack of equal blocks, each of which keeps more inside than at its border. Kept whole; cut into
√n segments; cut between every two layers; and cut where border and inside together are least.
`recomputation` shows one such cut under `checkpoint_sequential`; here the depth grows with the cut.

    python -m runners run checkpointing
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode

from proofbook.runners.api import Count, Declaration, Factor, PassName, Setting
from proofbook.runners.closed_forms.shape import FLOAT_BYTES
from proofbook.runners.closed_forms.training_settings import StackSettings
from proofbook.runners.training.rank import Rank, parameter_digest
from proofbook.runners.training.steps import sgd_steps, step_on_samples


def recomputed(rank: Rank[Cut]) -> None:
    """Build and train a stack with checkpointed segments, recomputed; record a step's FLOPs."""
    length = rank.settings.segment_length

    def forward(stack: nn.Sequential, samples: Tensor) -> Tensor:
        with set_checkpoint_early_stop(rank.settings.stops_early):
            for start in range(0, len(stack), length):
                samples = checkpoint(stack[start : start + length], samples, use_reentrant=False)
        return samples

    _train(rank, forward)


def kept(rank: Rank[Settings]) -> None:
    """Keep every activation until backward needs it."""
    _train(rank, lambda stack, samples: stack(samples))


def _train(rank: Rank[Settings], forward: Callable[[nn.Sequential, Tensor], Tensor]) -> None:
    """Train on one batch, then count the operations of one more step and digest its gradients."""
    settings = rank.settings
    torch.manual_seed(rank.seed)
    stack = nn.Sequential(
        *(ResidualBlock(settings.width, rank.device) for _ in range(settings.num_layers))
    )
    differentiate = step_on_samples(rank, partial(forward, stack))
    sgd_steps(rank, stack, differentiate)
    with FlopCounterMode(display=False) as counter:
        loss = differentiate()
    gradients = [p.grad for p in stack.parameters() if p.grad is not None]
    rank.measure("num_flops", counter.get_total_flops(), unit="FLOP")
    rank.measure("gradient_digest", parameter_digest(gradients), repeats="bits")
    rank.epoch(1, loss=loss, num_samples=settings.batch_size)


class ResidualBlock(nn.Module):
    """Widen, apply a ReLU, narrow, and add the input. In and out: (samples, width)."""

    def __init__(self, width: int, device: torch.device) -> None:
        super().__init__()
        self.up = nn.Linear(width, WIDENING * width, device=device)
        self.down = nn.Linear(WIDENING * width, width, device=device)

    def forward(self, samples: Tensor) -> Tensor:
        """Keep the input for `up` and the ReLU's output for `down`; the sum keeps nothing."""
        result: Tensor = samples + self.down(torch.relu(self.up(samples)))
        return result


QUESTION = (
    "How does the peak grow with depth, and how much is recomputed, for each choice "
    "of what to keep?"
)
WIDENING = 4  # of a block's inside


class Settings(StackSettings):
    """A stack of equal blocks, whose activations are all kept."""

    num_layers: Count = 16
    width: Count = 32
    batch_size: Count = 512
    num_steps: Count = 9
    learning_rate: Factor = 0.1

    def closed_forms(self) -> dict[str, Setting]:
        """By name, of the settings: bytes of activations and gradients; FLOPs of a product."""
        border = FLOAT_BYTES * self.batch_size * self.width
        return {
            "border_bytes": border,  # of the activations between two blocks
            # What a block keeps for backward: its input, and the widened activations.
            "inside_bytes": border * (1 + WIDENING),
            # Gradients while a block is differentiated: its border's, and those around the ReLU.
            "passing_bytes": border * (1 + 2 * WIDENING),
            # Of one matrix product of a block, which has two in forward.
            "num_product_flops": 2 * self.batch_size * self.width * WIDENING * self.width,
        }


class Cut(Settings):
    """The same stack in segments: only the activations between them are kept in forward."""

    segment_length: Count = 1
    stops_early: bool = True
    equal_parts = (("num_layers", "segment_length"),)

    def closed_forms(self) -> dict[str, Setting]:
        """How many segments are checkpointed one after another."""
        return {**super().closed_forms(), "num_segments": self.num_layers // self.segment_length}


def _run(settings: Settings, *passes: PassName) -> Declaration[Settings]:
    strategy = "recomputed" if isinstance(settings, Cut) else "kept"
    timed: tuple[PassName, ...] = ("timed",) if settings.num_layers == 16 else ()
    return Declaration(strategy, 1, settings, passes=passes or (*timed, "metered"))


DEPTHS = (9, 16, 36)
RUNS = {
    **{f"kept_{n}": _run(Settings(num_layers=n)) for n in DEPTHS},
    **{f"root_{n}": _run(Cut(num_layers=n, segment_length=math.isqrt(n))) for n in DEPTHS},
    **{f"each_{n}": _run(Cut(num_layers=n)) for n in DEPTHS},
    "each_16_to_the_end": _run(Cut(stops_early=False), "metered"),
    "least_36": _run(Cut(num_layers=36, segment_length=3)),
}
ON_CUDA = {"*": {"width": 1024, "batch_size": 4096}}
