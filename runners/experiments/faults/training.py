"""The training that faults interrupt: a sharded model, and its state kept as a checkpoint.

Everything that a step depends on is in the state or follows from the number of the step: the
samples too, which are drawn from it. So a training that is resumed can be equal to one that never
stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.fsdp import fully_shard

METADATA = ".metadata"  # written last, by one rank: a folder without it holds half a checkpoint


@dataclass(frozen=True)
class Shape:
    """What is trained: layers of width², samples of that many features, Adam."""

    width: int
    num_layers: int
    batch_size: int
    learning_rate: float
    seed: int


class Training:
    """A model that lives as shards on all ranks of the group, its optimizer, and its next step."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.step = 0
        self.sampler_step = 0  # which samples come next: the number of the step, unless forgotten
        torch.manual_seed(shape.seed)
        layers = [nn.Linear(shape.width, shape.width) for _ in range(shape.num_layers)]
        self.model = nn.Sequential(*layers)
        fully_shard(self.model)
        self.forget_optimizer()

    def take_step(self) -> None:
        """One step on samples that the seed, the step and the rank decide."""
        source = torch.Generator().manual_seed(
            self.shape.seed + 1000 * self.sampler_step + dist.get_rank()
        )
        samples = torch.randn(self.shape.batch_size, self.shape.width, generator=source)
        loss = nn.functional.mse_loss(self.model(samples), samples.flip(1))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        self.sampler_step += 1

    def forget_optimizer(self) -> None:
        """Start with a new optimizer, as who saved parameters alone must."""
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.shape.learning_rate)

    def _state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def save(self, folder: Path, before_metadata: Callable[[], None] | None = None) -> None:
        """Write a checkpoint: every rank its shards of parameters and of the optimizer's state.

        Args:
            folder: where checkpoints lie, each in a folder of its own.
            before_metadata: called on the first rank when all shards are written.
        """
        writer = _Writer(folder / f"step-{self.step:06}")
        writer.before_metadata = before_metadata
        save(self._state(), storage_writer=writer)

    def load(self, place: Path) -> None:
        """Go on from a checkpoint."""
        state = self._state()
        load(state, checkpoint_id=place)
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        self.step = self.sampler_step = state["step"]


class _Writer(FileSystemWriter):
    """Shows the worst moment of a save: all shards are written, and what says so is not."""

    before_metadata: Callable[[], None] | None = None

    def finish(self, *arguments: Any, **more: Any) -> None:
        if self.before_metadata is not None:
            self.before_metadata()
        super().finish(*arguments, **more)


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that is whole; None where there is none."""
    whole = [place.parent for place in folder.glob(f"step-*/{METADATA}")]
    return max(whole, default=None)
