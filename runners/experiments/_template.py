"""One linear layer in two sizes: what parameters, gradients and activations take.

python -m runners run widths
"""

from __future__ import annotations

import torch
from torch import nn

from proofbook.runners.api import Count, Declaration, RunSettings, closed_form
from proofbook.runners.training.rank import Rank


def train(rank: Rank[Settings]) -> None:
    """Train one linear layer by SGD to map one batch to zero, and measure the last loss."""
    settings = rank.settings
    layer = nn.Linear(settings.width, settings.width, device=rank.device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    rank.watch(layer, optimizer)  # the meters tell parameters, gradients and the rest apart
    inputs = torch.randn(settings.batch_size, settings.width, device=rank.device)
    for _ in rank.steps(settings.num_steps):  # a metered pass ends early
        loss = layer(inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    rank.measure("last_loss", loss.item(), unit="loss")  # a number of your own, and its unit


QUESTION = "Does a layer of twice the width need twice the memory?"


class Settings(RunSettings):
    """A linear layer, and a batch."""

    width: Count = 2048  # large beside the pages by which the kernel's mark may differ: 32 a CPU
    batch_size: Count = 16
    num_steps: Count = 5

    @closed_form
    def model_bytes(self) -> int:
        """Weights and biases in fp32."""
        return 4 * (self.width * self.width + self.width)


RUNS = {
    "narrow": Declaration("train", 1, Settings()),
    "wide": Declaration("train", 1, Settings(width=4096)),
}
