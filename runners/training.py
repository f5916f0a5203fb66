"""The training loop that the data-parallel experiments share: one batch after another, marked."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from runners.networks import grade
from runners.rank import Rank
from runners.teacher import Rows

Loss = Callable[[Tensor, Tensor], Tensor]


def train_step(
    rank: Rank, model: nn.Module, optimizer: torch.optim.Optimizer, rows: Rows
) -> tuple[float, int]:
    """One step on one batch; the loss and how many rows were classified rightly."""
    with rank.phase("forward"):
        logits = model(rows.features)
        loss = nn.functional.cross_entropy(logits, rows.labels)
    with rank.phase("backward"):
        loss.backward()
    with rank.phase("optimizer"):
        optimizer.step()
        optimizer.zero_grad()
    value = loss.item()
    rank.step_loss(value)
    rank.count_samples(len(rows.labels))
    return value, int((logits.argmax(1) == rows.labels).sum())


def train_epoch(
    rank: Rank,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    rows: Rows,
    batch_size: int,
) -> tuple[float, float, int]:
    """One pass over this rank's rows.

    Returns:
        Mean loss, share classified rightly, and the number of rows.
    """
    num_steps = len(rows.labels) // batch_size
    losses: list[float] = []
    right = 0
    for index in rank.steps(num_steps):
        batch = rows.take(slice(index * batch_size, (index + 1) * batch_size))
        loss, correct = train_step(rank, model, optimizer, batch)
        losses.append(loss)
        right += correct
    num_rows = len(losses) * batch_size
    return sum(losses) / len(losses), right / num_rows, num_rows


def validate(model: nn.Module, rows: Rows) -> tuple[int, float, float]:
    """Rows, loss and accuracy on rows never trained on."""
    with torch.no_grad():
        loss, accuracy = grade(model(rows.features), rows.labels)
    return len(rows.labels), loss, accuracy
