"""What every schedule of `pipeline_schedules` trains, and on what: equal layers, a drawn batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from runners.experiments.pipeline_schedules import Settings
from runners.ranks.rank import Rank
from runners.training.networks import ResidualLayer


class SmoothResidualLayer(ResidualLayer):
    """A residual layer with tanh in the place of ReLU. In and out: (samples, width).

    Gradients are compared here. A ReLU whose input is zero up to rounding is on in one order of
    summation and off in another, so on some processors its gradient differs by far more.
    """

    def forward(self, samples: Tensor) -> Tensor:
        """Add what the layer computes to what came in."""
        return samples + torch.tanh(self.linear(samples))


def mean_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error of one microbatch.

    A copy: on the CPU the scalar that `mse_loss` gives lies in memory as large as its input.
    """
    return nn.functional.mse_loss(outputs, targets).clone()


def layers_of(rank: Rank[Settings]) -> list[nn.Module]:
    """The whole stack, with the same values on every rank."""
    torch.manual_seed(rank.seed)
    settings = rank.settings
    return [SmoothResidualLayer(settings.width, rank.device) for _ in range(settings.num_layers)]


def drawn(rank: Rank[Settings], which: int) -> Tensor:
    """The batch's samples (0) or targets (1): (batch_size, width), the same on every rank."""
    source = torch.Generator().manual_seed(rank.seed + which)
    shape = (rank.settings.batch_size, rank.settings.width)
    return torch.randn(shape, generator=source).to(rank.device)


def undivided_step(model: nn.Module, samples: Tensor, targets: Tensor) -> float:
    """Forward and backward of the whole model on the whole batch; the loss."""
    loss = mean_loss(model(samples), targets)
    loss.backward()
    return loss.item()
