"""GPipe by hand: stages of a transformer, and how microbatches pass through them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from runners.experiments.transformer import PipelinedSettings, Settings
from runners.ranks.rank import Rank
from runners.training.networks import grade
from runners.training.transformer_model import Transformer, next_token_loss


class Stage:
    """This rank's share of the layers, and how microbatches pass through them."""

    def __init__(self, rank: Rank[Settings], model: Transformer) -> None:
        assert isinstance(rank.settings, PipelinedSettings)
        self.rank, self.settings = rank, rank.settings
        size = self.settings.num_layers // rank.world_size
        self.is_first = rank.rank == 0
        self.is_last = rank.rank == rank.world_size - 1
        start = 0 if self.is_first else 1 + rank.rank * size
        end = None if self.is_last else 1 + (rank.rank + 1) * size
        self.layers = nn.Sequential(*list(model)[start:end])

    def step(self, layers: nn.Module, tokens: Tensor, targets: Tensor) -> float | None:
        """Every microbatch forward, then every microbatch backward; the loss, on the last stage."""
        rank, parts = self.rank, self.settings.num_microbatches
        passed: list[tuple[Tensor, Tensor]] = []
        for own, wanted in zip(tokens.chunk(parts), targets.chunk(parts), strict=True):
            given = self._given(own)
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

    def _given(self, tokens: Tensor) -> Tensor:
        """What the stage before gives for these sequences, or the sequences themselves."""
        if self.is_first:
            return tokens
        shape = (*tokens.shape, self.settings.width)
        return self.rank.receive(shape, self.rank.rank - 1).requires_grad_()

    @torch.no_grad()
    def grade(
        self, rank: Rank[Settings], layers: nn.Module, tokens: Tensor, targets: Tensor
    ) -> tuple[float, float] | None:
        """Loss and share of bytes predicted rightly, on the last stage."""
        out = layers(self._given(tokens))
        if not self.is_last:
            rank.send(out, to=rank.rank + 1)
            return None
        return grade(out.flatten(0, 1), targets.flatten())


def _taken(passed: list[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """First in, first out, and freed."""
    while passed:
        yield passed.pop(0)
