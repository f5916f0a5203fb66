"""How memory, bytes passed and time grow with parameters, with ranks and with the batch.

One network of equal layers, measured at sizes that double. By parameters: a single device, and DDP
on two ranks. By ranks: DDP and FSDP (each rank a batch of its own), stages and a split batch (all
ranks one batch); a single rank is `single_width_1000`. By batch: a single device, and the batch
split over two ranks.

    python -m runners run growth
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from runners.experiments._growth_forecast import CHOICES, forecast
from runners.plans.experiment import RunPlan, whole_number
from runners.ranks.rank import Rank
from runners.traces.records import Setting
from runners.training.networks import description, num_parameters, perceptron

__all__ = ["CHOICES", "FULL", "QUESTION", "RUNS", "STRATEGIES", "forecast", "settle"]

QUESTION = "How do memory, bytes passed and time grow with ranks, parameters and batch?"
FULL = True

BYTES_PER_VALUE = 4
COPIES_PER_PARAMETER = 2  # plain SGD keeps each parameter and its gradient
SETTINGS: dict[str, Setting] = {
    "width": 1000,
    "num_layers": 4,
    "batch_size": 32,  # of a rank under DDP and FSDP, of all ranks together elsewhere
    "num_steps": 13,
    "learning_rate": 0.01,
}
WIDTHS = (250, 500, 1000, 2000)
BATCH_SIZES = (250, 500, 1000, 2000)
WORLD_SIZES = (2, 4)
BATCH_WIDTH = 500  # narrower, so that activations show beside parameters
EACH_ITS_OWN = ("ddp", "fsdp")  # strategies under which every rank has a batch of its own


def settle(plan: RunPlan) -> RunPlan:
    """The same run with what follows from its settings worked out anew.

    Raises:
        ValueError: the layers, or the batch, cannot be dealt out to the ranks equally.
    """
    settings = dict(plan.settings)
    width, num_layers = whole_number(settings, "width"), whole_number(settings, "num_layers")
    batch_size, world_size = whole_number(settings, "batch_size"), plan.world_size
    if plan.strategy == "stages" and num_layers % world_size:
        raise ValueError(f"num_layers {num_layers} cannot be dealt out to {world_size} ranks")
    if plan.strategy == "split" and batch_size % world_size:
        raise ValueError(f"batch_size {batch_size} cannot be split over {world_size} ranks")
    counts = num_parameters([width] * (num_layers + 1))
    settings |= {
        "num_parameters": sum(counts),
        "num_parameters_per_layer": counts[0],
        "num_layers_per_rank": num_layers // (world_size if plan.strategy == "stages" else 1),
        "num_rows_per_rank": batch_size // (world_size if plan.strategy == "split" else 1),
        "num_rows_per_step": batch_size * (world_size if plan.strategy in EACH_ITS_OWN else 1),
        "bytes_per_value": BYTES_PER_VALUE,
        "copies_per_parameter": COPIES_PER_PARAMETER,
        "model_bytes": BYTES_PER_VALUE * sum(counts),
        "activation_bytes": BYTES_PER_VALUE * batch_size * width,  # what one layer puts out
    }
    return replace(plan, settings=settings)


def _plan(strategy: str, world_size: int, **changed: int) -> RunPlan:
    plan = RunPlan(
        strategy,
        world_size,
        {**SETTINGS, **changed},
        has_timeline=False,
        can_share_device=strategy in ("single", "ddp", "stages"),
    )
    return settle(plan)


def _plans() -> dict[str, RunPlan]:
    plans: dict[str, RunPlan] = {}
    for width in WIDTHS:
        plans[f"single_width_{width}"] = _plan("single", 1, width=width)
        plans[f"ddp_width_{width}"] = _plan("ddp", 2, width=width)
    for strategy in ("ddp", "fsdp", "stages", "split"):
        for world_size in WORLD_SIZES:
            plans[f"{strategy}_ranks_{world_size}"] = _plan(strategy, world_size)
    for batch_size in BATCH_SIZES:
        sizes = {"width": BATCH_WIDTH, "batch_size": batch_size}
        plans[f"single_batch_{batch_size}"] = _plan("single", 1, **sizes)
        plans[f"split_batch_{batch_size}"] = _plan("split", 2, **sizes)
    return plans


RUNS = _plans()


def _widths(rank: Rank) -> list[int]:
    return [rank.settings.width] * (rank.settings.num_layers + 1)


def _describe(rank: Rank, ranks: list[list[int]] | None = None, *, sharded: bool = False) -> None:
    num_layers = rank.settings.num_layers
    held_by = ranks or [list(range(rank.world_size))] * num_layers
    rank.describe(description(_widths(rank), held_by, sharded=[sharded] * num_layers))


def _replica(rank: Rank) -> nn.Module:
    """All layers, with the same parameters on every rank."""
    with rank.phase("build"):
        torch.manual_seed(rank.seed)
        return perceptron(_widths(rank), device=rank.device)


def _rows(rank: Rank, seed: int) -> tuple[Tensor, Tensor]:
    """A batch of random rows and labels; what they are does not change what training costs."""
    settings = rank.settings
    with rank.phase("rows"):
        source = torch.Generator().manual_seed(seed)
        shape = (settings.batch_size, settings.width)
        features = torch.randn(shape, generator=source).to(rank.device)
        labels = torch.randint(0, settings.width, shape[:1], generator=source).to(rank.device)
        rank.rows(features, labels)
    return features, labels


def _train(rank: Rank, model: nn.Module, step: Callable[[], float | None]) -> None:
    """Repeat one step; `step` goes forward and backward, and gives the loss where it is known."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rank.settings.learning_rate)
    rank.watch(model, optimizer)
    loss = None
    for _ in rank.steps(rank.settings.num_steps):
        loss = step()
        with rank.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
    rank.epoch(1, loss=loss, num_samples=rank.settings.num_rows_per_rank if loss else 0)


def _whole_step(rank: Rank, model: nn.Module, seed: int) -> Callable[[], float]:
    """Forward and backward on this rank's whole batch."""
    features, labels = _rows(rank, seed)

    def step() -> float:
        with rank.phase("forward"):
            loss = nn.functional.cross_entropy(model(features), labels)
        with rank.phase("backward"):
            loss.backward()
        return loss.item()

    return step


def single(rank: Rank) -> None:
    """One device holds everything."""
    _describe(rank)
    model = _replica(rank)
    _train(rank, model, _whole_step(rank, model, rank.seed))


def ddp(rank: Rank) -> None:
    """A replica and a batch on every rank; gradients are averaged."""
    _describe(rank)
    model = _replica(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model)
    _train(rank, replica, _whole_step(rank, replica, rank.seed + rank.rank))


def fsdp(rank: Rank) -> None:
    """Each layer's parameters in shards, a batch on every rank."""
    _describe(rank, sharded=True)
    mesh = init_device_mesh(rank.device.type, (rank.world_size,))
    model = _replica(rank)
    with rank.phase("wrap"):
        for module in model.children():
            if isinstance(module, nn.Linear):
                fully_shard(module, mesh=mesh)
        fully_shard(model, mesh=mesh)
    _train(rank, model, _whole_step(rank, model, rank.seed + rank.rank))


def stages(rank: Rank) -> None:
    """Each rank its own layers; one batch goes forward through all of them and back."""
    own = rank.settings.num_layers_per_rank
    _describe(rank, [[layer // own] for layer in range(rank.settings.num_layers)])
    is_first, is_last = rank.rank == 0, rank.rank == rank.world_size - 1
    with rank.phase("build"):
        model = perceptron([rank.settings.width] * (own + 1), device=rank.device)
    features, labels = _rows(rank, rank.seed)

    def step() -> float | None:
        taken = features
        if not is_first:
            taken = rank.receive(features.shape, source=rank.rank - 1).requires_grad_()
        with rank.phase("forward"):
            given = model(taken)
            if is_last:
                loss = nn.functional.cross_entropy(given, labels)
            else:
                given = torch.relu(given)
        gradient = None
        if not is_last:
            rank.send(given.detach(), to=rank.rank + 1)
            gradient = rank.receive(given.shape, source=rank.rank + 1)
        with rank.phase("backward"):
            (loss if is_last else given).backward(gradient)
        if not is_first:
            assert taken.grad is not None
            rank.send(taken.grad, to=rank.rank - 1)
        return loss.item() if is_last else None

    _train(rank, model, step)


def split(rank: Rank) -> None:
    """Rank 0 holds the batch: it scatters the rows, gathers the logits and takes the loss."""
    _describe(rank)
    model = _replica(rank)
    shape = (rank.settings.num_rows_per_rank, rank.settings.width)
    features, labels = _rows(rank, rank.seed) if rank.rank == 0 else (None, None)

    def parts(whole: Tensor | None) -> list[Tensor] | None:
        return None if whole is None else list(whole.chunk(rank.world_size))

    def scattered(whole: Tensor | None) -> Tensor:
        with rank.phase("scatter", computes=False):
            own = torch.empty(shape, device=rank.device)
            dist.scatter(own, parts(whole))
        return own

    def step() -> float | None:
        own = scattered(features)
        with rank.phase("forward"):
            logits = model(own)
        with rank.phase("gather", computes=False):
            gathered = None
            if rank.rank == 0:
                gathered = [torch.empty_like(logits) for _ in range(rank.world_size)]
            dist.gather(logits.detach(), gathered)
        loss, gradients = _whole_loss(rank, gathered, labels)
        del gathered
        gradient = scattered(gradients)
        with rank.phase("backward"):
            logits.backward(gradient)
        with rank.phase("all_reduce", computes=False):
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        return loss

    _train(rank, model, step)


def _whole_loss(
    rank: Rank, gathered: list[Tensor] | None, labels: Tensor | None
) -> tuple[float | None, Tensor | None]:
    """On rank 0: the loss over the whole batch, and its gradient with respect to the logits."""
    if gathered is None or labels is None:
        return None, None
    with rank.phase("loss"):
        logits = torch.cat(gathered).requires_grad_()
        loss = nn.functional.cross_entropy(logits, labels)
        loss.backward()
        return loss.item(), logits.grad


STRATEGIES = {"single": single, "ddp": ddp, "fsdp": fsdp, "stages": stages, "split": split}
