"""Train a stack whose activations are kept, or dropped inside segments and computed again."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode

from runners.experiments.checkpointing import WIDENING, Cut, Settings
from runners.ranks.rank import Rank
from runners.ranks.recorder import parameter_digest

Forward = Callable[[nn.Sequential, Tensor], Tensor]


def recomputed(rank: Rank[Cut]) -> None:
    """Keep only what lies between segments; backward computes the inside of each again."""
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


class Block(nn.Module):
    """Widen, apply a ReLU, narrow, and add the input. In and out: (samples, width)."""

    def __init__(self, width: int, device: torch.device) -> None:
        super().__init__()
        self.up = nn.Linear(width, WIDENING * width, device=device)
        self.down = nn.Linear(WIDENING * width, width, device=device)

    def forward(self, samples: Tensor) -> Tensor:
        """Keep the input for `up` and the ReLU's output for `down`; the sum keeps nothing."""
        result: Tensor = samples + self.down(torch.relu(self.up(samples)))
        return result


def _train(rank: Rank[Settings], forward: Forward) -> None:
    """Train on one batch, then count the operations of one more step and digest its gradients."""
    settings = rank.settings
    torch.manual_seed(rank.seed)
    stack = nn.Sequential(*(Block(settings.width, rank.device) for _ in range(settings.num_layers)))
    optimizer = torch.optim.SGD(stack.parameters(), lr=settings.learning_rate)
    features, labels = _batch(rank)

    def differentiate() -> float:
        with rank.phase("forward"):  # segments are called, and not the stack whose hook would tell
            loss = nn.functional.cross_entropy(forward(stack, features), labels)
        loss.backward()
        return loss.item()

    rank.watch(stack, optimizer)
    for _ in rank.steps(settings.num_steps):
        differentiate()
        optimizer.step()
        optimizer.zero_grad()
    with FlopCounterMode(display=False) as counter:
        loss = differentiate()
    gradients = [p.grad for p in stack.parameters() if p.grad is not None]
    rank.measure("num_flops", counter.get_total_flops())
    rank.measure("gradient_digest", parameter_digest(gradients))
    rank.measure("num_gradients", len(gradients))
    rank.epoch(1, loss=loss, num_samples=len(labels))


def _batch(rank: Rank[Settings]) -> tuple[Tensor, Tensor]:
    settings = rank.settings
    with rank.phase("samples"):
        source = torch.Generator().manual_seed(rank.seed)
        shape = (settings.batch_size, settings.width)
        features = torch.randn(shape, generator=source).to(rank.device)
        labels = torch.randint(0, settings.width, shape[:1], generator=source).to(rank.device)
        rank.inputs(features, labels)
    return features, labels


STRATEGIES = {"kept": kept, "recomputed": recomputed}
