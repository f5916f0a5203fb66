"""One training loop for every strategy of `transformer`, and the steps that differ.

In: a rank, its model or stage, and the sequences of each batch that are its own. Out: losses of
every step, and the loss on held-out text.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from runners.experiments.transformer import Settings
from runners.ranks.rank import Rank
from runners.training.networks import grade
from runners.training.steps import of_all_ranks
from runners.training.text import Text, batch_starts, held_out_starts, read_text, record, windows
from runners.training.transformer_model import next_token_step

NATS_PER_BIT = 0.6931471805599453
WHOLE = slice(None)
Step = Callable[[nn.Module, Tensor, Tensor], float | None]
Grade = Callable[[Rank[Settings], nn.Module, Tensor, Tensor], tuple[float, float] | None]


@torch.no_grad()
def whole_grade(
    rank: Rank[Settings], model: nn.Module, tokens: Tensor, targets: Tensor
) -> tuple[float, float] | None:
    """Loss and share of bytes predicted rightly; every rank computes it, rank 0 reports it."""
    graded = grade(model(tokens).flatten(0, 1), targets.flatten())
    return graded if rank.rank == 0 else None


def train(
    rank: Rank[Settings],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    samples: slice = WHOLE,
    *,
    step: Step = next_token_step,
    grade_with: Grade = whole_grade,
) -> Text:
    """Train to the end, and look at held-out text.

    Args:
        rank: that trains.
        model: what it trains of the model.
        optimizer: of these parameters.
        samples: of each global batch, this rank's own.
        step: forward and backward; its loss, or None on a rank that does not see it.
        grade_with: what tells the loss on held-out text.
    """
    settings = rank.settings
    text = read_text()
    if rank.rank == 0:
        record(rank, text)
    length = settings.context
    starts = batch_starts(
        text.training, rank.seed, settings.num_steps, settings.global_batch_size, length
    )
    rank.watch(model, optimizer)
    losses = []
    for index in rank.steps(settings.num_steps):
        tokens, targets = on_device(rank, *windows(text.training, starts[index][samples], length))
        losses.append(step(model, tokens, targets))
        optimizer.step()
        optimizer.zero_grad()
        rank.count_samples(len(tokens))
    if not rank.is_metered:
        known = [loss for loss in losses if loss is not None]
        seen = known if samples == WHOLE else _mean_over_ranks(rank, known)
        held_out = held_out_starts(text.held_out, settings.num_held_out_samples, length)
        graded = grade_with(
            rank, model, *on_device(rank, *windows(text.held_out, held_out, length))
        )
        _report(rank, seen, graded)
    return text


def on_device(rank: Rank[Settings], tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Both on this rank's device, where the meters know them as input."""
    moved = tokens.to(rank.device), targets.to(rank.device)
    rank.inputs(*moved)
    return moved


def _mean_over_ranks(rank: Rank[Settings], losses: list[float]) -> list[float]:
    """The loss of each global batch where ranks see parts of it; gathered once, after training."""
    of_steps = zip(*of_all_ranks(rank, losses), strict=True)
    return [sum(of_step) / rank.world_size for of_step in of_steps]


def _report(rank: Rank[Settings], losses: list[float], graded: tuple[float, float] | None) -> None:
    if not losses:
        return
    for loss in losses:
        rank.step_loss(loss)
    num_samples = rank.settings.num_held_out_samples
    validation = (num_samples, *graded) if graded else None
    rank.epoch(
        1,
        loss=sum(losses) / len(losses),
        num_samples=rank.outcome.num_samples or 0,
        validation=validation,
    )
    if graded is not None:
        rank.measure("held_out_loss", graded[0])
        rank.measure("bits_per_byte", graded[0] / NATS_PER_BIT)
    print(
        f"loss of the last batch {losses[-1]:.3f}, of held-out text {graded and graded[0]} a byte"
    )
