"""How memory, bytes passed and time grow with parameters, with ranks and with the batch.

One network of equal layers, measured at sizes that double. By parameters: a single device, and DDP
on two ranks. By ranks: DDP and FSDP (each rank a batch of its own), stages and a split batch (all
ranks one batch); a single rank is `single_width_1000`. By batch: a single device, and the batch
split over two ranks.

    python -m runners run growth
"""

from __future__ import annotations

from functools import cached_property

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor
from runners.plans.work import mlp_parameters
from runners.training.settings import StackSettings

QUESTION = "How do memory, payload and time grow with the ranks, the parameters and the batch size?"
BYTES_PER_VALUE = 4
WIDTHS = (250, 500, 1000, 2000)
BATCH_SIZES = (250, 500, 1000, 2000)
WORLD_SIZES = (2, 4)
BATCH_WIDTH = 500  # narrower, so that activations show beside parameters


class Settings(StackSettings):
    """A stack of equal layers, its batch, and how both are divided among the ranks."""

    width: Count = 1000
    num_layers: Count = 4
    batch_size: Count = 32  # of a rank under DDP and FSDP, of all ranks together elsewhere
    num_steps: Count = 13
    learning_rate: Factor = 0.01

    @cached_property
    def num_parameters(self) -> int:
        """Of all layers."""
        return mlp_parameters([self.width] * (self.num_layers + 1))

    @cached_property
    def num_parameters_per_layer(self) -> int:
        """A weight and a bias."""
        return mlp_parameters([self.width] * 2)

    @cached_property
    def num_layers_per_rank(self) -> int:
        """Layers that one rank computes."""
        return self.num_layers // (self.world_size if self.strategy == "stages" else 1)

    @cached_property
    def num_samples_per_rank(self) -> int:
        """Samples that one rank computes in a step."""
        return self.batch_size // (self.world_size if self.strategy == "split" else 1)

    @cached_property
    def num_samples_per_step(self) -> int:
        """Samples of all ranks in a step; under DDP and FSDP each rank has a batch of its own."""
        return self.batch_size * (self.world_size if self.strategy in ("ddp", "fsdp") else 1)

    @cached_property
    def bytes_per_value(self) -> int:
        """Of float32."""
        return BYTES_PER_VALUE

    @cached_property
    def copies_per_parameter(self) -> int:
        """Plain SGD keeps each parameter and its gradient."""
        return 2

    @cached_property
    def model_bytes(self) -> int:
        """All parameters."""
        return BYTES_PER_VALUE * self.num_parameters

    @cached_property
    def activation_bytes(self) -> int:
        """What one layer puts out for the whole batch."""
        return BYTES_PER_VALUE * self.batch_size * self.width

    def check(self) -> None:
        """Refuse layers, or a batch, that cannot be divided among the ranks equally."""
        n = self.world_size
        if self.strategy == "stages" and self.num_layers % n:
            raise ValueError(f"num_layers {self.num_layers} cannot be dealt out to {n} ranks")
        if self.strategy == "split" and self.batch_size % n:
            raise ValueError(f"batch_size {self.batch_size} cannot be split over {n} ranks")


def _plan(strategy: str, world_size: int, settings: Settings) -> RunPlan[Settings]:
    """A run; gloo cannot scatter, gather or shard the tensors of a shared accelerator."""
    shares = strategy in ("single", "ddp", "stages")
    return RunPlan(strategy, world_size, settings, has_timeline=False, can_share_device=shares)


def _by_width() -> dict[str, RunPlan[Settings]]:
    return {
        f"{strategy}_width_{width}": _plan(strategy, world_size, Settings(width=width))
        for width in WIDTHS
        for strategy, world_size in (("single", 1), ("ddp", 2))
    }


def _by_ranks() -> dict[str, RunPlan[Settings]]:
    return {
        f"{strategy}_ranks_{world_size}": _plan(strategy, world_size, Settings())
        for strategy in ("ddp", "fsdp", "stages", "split")
        for world_size in WORLD_SIZES
    }


def _by_batch() -> dict[str, RunPlan[Settings]]:
    return {
        f"{strategy}_batch_{size}": _plan(
            strategy, world_size, Settings(width=BATCH_WIDTH, batch_size=size)
        )
        for size in BATCH_SIZES
        for strategy, world_size in (("single", 1), ("split", 2))
    }


RUNS = {**_by_width(), **_by_ranks(), **_by_batch()}
