"""How memory, bytes passed and time grow with parameters, with ranks and with the batch.

One network of equal layers, measured at sizes that double. Under DDP and FSDP each rank has a batch
of its own; stages and a split batch share one.

    python -m runners run growth
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from runners.closed_forms.training_settings import StackSettings
from runners.closed_forms.work import FLOAT_BYTES, mlp_parameters
from runners.core.declared.experiment import Declaration
from runners.core.declared.settings import Count, Factor
from runners.core.ranks.rank import Rank
from runners.core.trace.schema import Setting
from runners.training import steps
from runners.training.networks import description, mlp
from runners.training.stages import back_through_stage, through_stage


def ddp(rank: Rank[Settings]) -> None:
    """A replica and a batch on every rank; gradients are averaged."""
    replica = steps.replica_of(rank, steps.stack_for(rank))
    _train(rank, replica, steps.step_on_samples(rank, replica))


def fsdp(rank: Rank[Settings]) -> None:
    """Each layer's parameters in shards, a batch on every rank."""
    model = steps.stack_for(rank, is_sharded=True)
    steps.shard_layers(rank, model)
    _train(rank, model, steps.step_on_samples(rank, model))


def stages(rank: Rank[Settings]) -> None:
    """Each rank its own layers; one batch goes forward through all of them and back."""
    settings = rank.settings
    own = settings.num_layers // rank.world_size
    held_by = [[layer // own] for layer in range(settings.num_layers)]
    rank.describe(description(settings.widths, held_by))
    is_last = rank.rank == rank.world_size - 1
    model = mlp([settings.width] * (own + 1), device=rank.device)
    features, labels = steps.random_samples(rank, settings.batch_size, rank.seed)

    def layers(taken: Tensor) -> Tensor:
        given: Tensor = model(taken)
        return given if is_last else torch.relu(given)

    def step() -> float | None:
        taken, given = through_stage(rank, layers, features, features.shape)
        if not is_last:
            back_through_stage(rank, taken, given)
            return None
        with rank.phase("forward"):
            loss = cross_entropy(given, labels)
        back_through_stage(rank, taken, loss)
        return loss.item()

    _train(rank, model, step)


def split(rank: Rank[Settings]) -> None:
    """Rank 0 holds the batch: it scatters the samples, gathers the logits and takes the loss."""
    settings, is_root = rank.settings, rank.rank == 0
    model = steps.stack_for(rank)
    shape = (settings.batch_size // rank.world_size, settings.width)
    features = labels = None
    if is_root:
        features, labels = steps.random_samples(rank, settings.batch_size, rank.seed)

    def scattered(whole: Tensor | None) -> Tensor:
        with rank.phase("scatter", computes=False):
            own = torch.empty(shape, device=rank.device)
            dist.scatter(own, None if whole is None else list(whole.chunk(rank.world_size)))
        return own

    def whole_loss(gathered: list[Tensor]) -> tuple[float, Tensor | None]:
        assert labels is not None
        with rank.phase("loss"):
            logits = torch.cat(gathered).requires_grad_()
            loss = cross_entropy(logits, labels)
            loss.backward()
            return loss.item(), logits.grad

    def step() -> float | None:
        own = scattered(features)
        with rank.phase("forward"):  # a hook would take the loss of the whole batch for a part
            logits = model(own)
        with rank.phase("gather", computes=False):
            parts = [torch.empty_like(logits) for _ in range(rank.world_size)] if is_root else None
            dist.gather(logits.detach(), parts)
        loss, gradients = whole_loss(parts) if parts else (None, None)
        del parts
        gradient = scattered(gradients)
        logits.backward(gradient)
        with rank.phase("all_reduce", computes=False):
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        return loss

    _train(rank, model, step)


def single(rank: Rank[Settings]) -> None:
    """One device holds everything."""
    model = steps.stack_for(rank)
    _train(rank, model, steps.step_on_samples(rank, model))


def _train(rank: Rank[Settings], model: nn.Module, step: Callable[[], float | None]) -> None:
    """Repeat one step, which goes forward and backward and gives the loss where it is known."""
    loss = steps.sgd_steps(rank, model, step)
    parts = rank.world_size if rank.declaration.strategy == "split" else 1
    rank.epoch(1, loss=loss, num_samples=rank.settings.batch_size // parts if loss else 0)


QUESTION = "How do memory, payload and time grow with the ranks, the parameters and the batch size?"
SIZES = (250, 500, 1000, 2000)  # widths, and batch sizes
WORLD_SIZES = (2, 4)
BATCH_WIDTH = 500  # narrower, so that activations show beside parameters


class Settings(StackSettings):
    """A stack of equal layers, its batch, and how both are divided among the ranks."""

    width: Count = 1000
    num_layers: Count = 4
    batch_size: Count = 32  # of a rank under DDP and FSDP, of all ranks together elsewhere
    num_steps: Count = 13
    learning_rate: Factor = 0.01
    equal_parts = (("num_layers", "world_size"), ("batch_size", "world_size"))

    def closed_forms(self) -> dict[str, Setting]:
        """Parameters, and what one layer puts out for the whole batch, in numbers and bytes.

        Plain SGD keeps each parameter and its gradient.
        """
        num_parameters = mlp_parameters(self.widths)
        return {
            "num_parameters": num_parameters,
            "bytes_per_value": FLOAT_BYTES,
            "copies_per_parameter": 2,
            "model_bytes": FLOAT_BYTES * num_parameters,
            "activation_bytes": FLOAT_BYTES * self.batch_size * self.width,
        }


def _plan(strategy: str, world_size: int, **settings: int) -> Declaration[Settings]:
    """A run; gloo cannot scatter, gather or shard the tensors of a shared accelerator."""
    shares = strategy in ("single", "ddp", "stages")
    return Declaration(strategy, world_size, Settings(**settings), can_share_device=shares)


RUNS = {
    **{
        f"{strategy}_width_{width}": _plan(strategy, world_size, width=width)
        for width in SIZES
        for strategy, world_size in (("single", 1), ("ddp", 2))
    },
    **{
        f"{strategy}_ranks_{world_size}": _plan(strategy, world_size)
        for strategy in ("ddp", "fsdp", "stages", "split")
        for world_size in WORLD_SIZES
    },
    **{
        f"{strategy}_batch_{size}": _plan(strategy, world_size, width=BATCH_WIDTH, batch_size=size)
        for size in SIZES
        for strategy, world_size in (("single", 1), ("split", 2))
    },
}
TRIED_WITH = {"*": {"num_steps": 2}}
