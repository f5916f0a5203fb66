"""One training loop for every strategy of `transformer`, and the steps that differ.

In: a rank, its model or stage, and the rows of each batch that are its own. Out: losses of every
step, the loss on held-out text, and what a step's operations come to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from runners.experiments._transformer_plans import FLOAT, shape_of
from runners.ranks.rank import Rank
from runners.traces.records import Layer, Model
from runners.training.networks import grade
from runners.training.text import Text, batch_starts, held_out_starts, read_text, record, windows
from runners.training.transformer import Transformer, next_token_loss

NATS_PER_BIT = 0.6931471805599453
Step = Callable[[Rank, nn.Module, Tensor, Tensor], float | None]
Grade = Callable[[Rank, nn.Module, Tensor, Tensor], tuple[float, float] | None]


def whole_step(rank: Rank, model: nn.Module, tokens: Tensor, targets: Tensor) -> float | None:
    """Forward and backward of a model that takes its rows in one piece."""
    with rank.phase("forward"):
        loss = next_token_loss(model(tokens), targets)
    with rank.phase("backward"):
        loss.backward()
    return loss.item()


@torch.no_grad()
def whole_grade(
    rank: Rank, model: nn.Module, tokens: Tensor, targets: Tensor
) -> tuple[float, float] | None:
    """Loss and share of bytes foretold rightly; every rank computes it, rank 0 tells."""
    graded = grade(model(tokens).flatten(0, 1), targets.flatten())
    return graded if rank.rank == 0 else None


def train(
    rank: Rank,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    step: Step,
    rows: slice,
    grade_with: Grade = whole_grade,
    *,
    averages: bool = False,
) -> Text:
    """Train to the end, and look at held-out text.

    Args:
        rank: that trains.
        model: what it trains of the model.
        optimizer: of these parameters.
        step: forward and backward; its loss, or None on a rank that does not see it.
        rows: of each global batch, this rank's own.
        grade_with: what tells the loss on held-out text.
        averages: whether ranks see different rows, so that the batch's loss is the mean of theirs.
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
        tokens, targets = _on_device(rank, *windows(text.training, starts[index][rows], length))
        losses.append(step(rank, model, tokens, targets))
        with rank.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        rank.count_samples(len(tokens))
    if not rank.is_metered:
        seen = _of_the_batch(rank, [loss for loss in losses if loss is not None], averages=averages)
        held_out = held_out_starts(text.held_out, settings.num_held_out_rows, length)
        graded = grade_with(
            rank, model, *_on_device(rank, *windows(text.held_out, held_out, length))
        )
        _report(rank, seen, graded)
    return text


def _on_device(rank: Rank, tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    moved = tokens.to(rank.device), targets.to(rank.device)
    rank.rows(*moved)
    return moved


def _of_the_batch(rank: Rank, losses: list[float], *, averages: bool) -> list[float]:
    """The loss of each global batch: the mean over the ranks, asked for once, after training."""
    if not averages:
        return losses
    of_ranks = [losses] * rank.world_size
    dist.all_gather_object(of_ranks, losses)
    return [sum(of_step) / rank.world_size for of_step in zip(*of_ranks, strict=True)]


def _report(rank: Rank, losses: list[float], graded: tuple[float, float] | None) -> None:
    if not losses:
        return
    for loss in losses:
        rank.step_loss(loss)
    num_rows = rank.settings.num_held_out_rows
    validation = (num_rows, *graded) if graded else None
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


class Stage:
    """This rank's share of the layers, and how parts of a batch pass through them."""

    def __init__(self, rank: Rank, model: Transformer) -> None:
        size = rank.settings.num_layers // rank.world_size
        self.is_first = rank.rank == 0
        self.is_last = rank.rank == rank.world_size - 1
        start = 0 if self.is_first else 1 + rank.rank * size
        end = None if self.is_last else 1 + (rank.rank + 1) * size
        self.layers = nn.Sequential(*list(model)[start:end])

    def step(self, rank: Rank, layers: nn.Module, tokens: Tensor, targets: Tensor) -> float | None:
        """Every part forward, then every part backward: GPipe. The loss, on the last stage."""
        parts = rank.settings.num_microbatches
        passed: list[tuple[Tensor, Tensor]] = []
        for own, wanted in zip(tokens.chunk(parts), targets.chunk(parts), strict=True):
            given = self._given(rank, own)
            with rank.phase("forward"):
                out = layers(given)
                if self.is_last:
                    out = next_token_loss(out, wanted) / parts
            if not self.is_last:
                rank.send(out.detach(), to=rank.rank + 1)
            passed.append((given, out))
            del out
        loss = sum(out.item() for _, out in passed) if self.is_last else None
        for given, out in _taken(passed):
            gradient = None if self.is_last else rank.receive(out.shape, rank.rank + 1)
            with rank.phase("backward"):
                out.backward(gradient)
            if not self.is_first and given.grad is not None:
                rank.send(given.grad, to=rank.rank - 1)
        return loss

    def _given(self, rank: Rank, tokens: Tensor) -> Tensor:
        """What the stage before gives for these rows, or the rows themselves."""
        if self.is_first:
            return tokens
        return rank.receive((*tokens.shape, rank.settings.width), rank.rank - 1).requires_grad_()

    @torch.no_grad()
    def grade(
        self, rank: Rank, layers: nn.Module, tokens: Tensor, targets: Tensor
    ) -> tuple[float, float] | None:
        """Loss and share of bytes foretold rightly, on the last stage."""
        out = layers(self._given(rank, tokens))
        if not self.is_last:
            rank.send(out, to=rank.rank + 1)
            return None
        return grade(out.flatten(0, 1), targets.flatten())


def _taken(passed: list[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """First in, first out, and let go."""
    while passed:
        yield passed.pop(0)


def count_operations(rank: Rank, model: nn.Module, text: Text) -> None:
    """Count the operations of a step's matrix products with torch's own counter.

    Once as training runs it, and once with attention in plain matrix products: the counter has no
    formula for the CPU's fused attention, and passes over it in silence.
    """
    starts = range(rank.settings.global_batch_size)
    tokens, targets = _on_device(rank, *windows(text.training, starts, rank.settings.context))
    rank.measure("num_counted_flops", _counted(model, tokens, targets))
    with sdpa_kernel(SDPBackend.MATH):
        rank.measure("num_counted_plain_flops", _counted(model, tokens, targets))


def _counted(model: nn.Module, tokens: Tensor, targets: Tensor) -> int:
    with FlopCounterMode(display=False) as counter:
        next_token_loss(model(tokens), targets).backward()
    model.zero_grad()
    return int(counter.get_total_flops())


def described(
    rank: Rank, *, is_sharded: bool = False, is_split: bool = False, is_staged: bool = False
) -> None:
    """Say of the whole model who holds which layer, and whether whole.

    Args:
        rank: whose run it is.
        is_sharded: every rank holds a shard of everything.
        is_split: every rank holds some columns and rows of each block, and the ends whole.
        is_staged: every rank holds some layers.
    """
    shape = shape_of(vars(rank.settings))
    everyone = list(range(rank.world_size))
    size = max(1, shape.num_layers // rank.world_size)

    def layer(
        name: str, kind: Literal["Embedding", "Block", "Head"], count: int, place: int
    ) -> Layer:
        return Layer(
            name=name,
            kind=kind,
            weight_shape=[shape.hidden if kind == "Block" else shape.vocabulary, shape.width],
            num_parameters=count,
            bytes=count * FLOAT,
            ranks=[place] if is_staged else everyone,
            is_sharded=is_sharded or (is_split and kind == "Block"),
        )

    blocks = [
        layer(f"block{i + 1}", "Block", shape.block_parameters(), i // size)
        for i in range(shape.num_layers)
    ]
    first = (shape.vocabulary + shape.context) * shape.width
    last = 2 * shape.width + shape.vocabulary * shape.width
    rank.describe(
        Model(
            num_parameters=shape.num_parameters(),
            bytes=shape.num_parameters() * FLOAT,
            dtype="float32",
            layers=[
                layer("embedding", "Embedding", first, 0),
                *blocks,
                layer("head", "Head", last, rank.world_size - 1),
            ],
        )
    )
