"""Two ways of splitting at once, on ranks in a square: what each axis carries, and what ranks hold.

The same small transformer on the same batch: on one device; as two pipelines whose stages are
averaged by DDP; under FSDP along one axis and split inside its layers along the other; in shards
along one axis, replicated along the other (HSDP); and in shards over all four ranks.

    python -m runners run hybrid
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.parallel import DistributedDataParallel

from runners.experiments._hybrid_plans import (
    CHOICES,
    ON_CUDA,
    RUNS,
    SIDE,
    forecast,
    settle,
    shape_of,
)
from runners.training.split import blocks_plan as plan_of
from runners.meters.axes import AxisMeter
from runners.ranks.rank import NUM_METERED_STEPS, Rank
from runners.training.transformer import Transformer, next_token_loss

__all__ = ["CHOICES", "ON_CUDA", "QUESTION", "RUNS", "STRATEGIES", "forecast", "settle"]

QUESTION = "What does each axis carry when a model is split in two ways at once?"
Step = Callable[[], float | None]


def _unfilled(rank: Rank) -> Transformer:
    """The whole model without memory."""
    with torch.device("meta"):
        return Transformer(shape_of(vars(rank.settings)))


def _value(rank: Rank, place: int, name: str, shape: Iterable[int]) -> Tensor:
    """What one parameter starts with, whole: the same on every rank, whoever holds which part."""
    source = torch.Generator().manual_seed(1000 * rank.seed + place)
    if "norm" in name:
        return torch.ones(*shape) if name.endswith("weight") else torch.zeros(*shape)
    return 0.05 * torch.randn(*shape, generator=source)


def _own_part(parameter: Tensor, whole: Tensor) -> Tensor:
    """What this rank holds of a parameter: the tensor axis cut first, FSDP what that left."""
    if not isinstance(parameter, DTensor):
        return whole
    mesh = parameter.device_mesh
    for axis in reversed(range(mesh.ndim)):
        dim = getattr(parameter.placements[axis], "dim", None)  # only what is split has one
        if dim is not None:
            whole = whole.chunk(mesh.size(axis), dim=dim)[mesh.get_local_rank(axis)]
    return whole


@torch.no_grad()
def _fill(rank: Rank, module: nn.Module, first: int = 0) -> None:
    """Give a module without memory the values it starts with; it begins at layer `first`."""
    places = {name: i for i, (name, _) in enumerate(_unfilled(rank).named_parameters())}
    wholes = {name: p.shape for name, p in _unfilled(rank).named_parameters()}
    module.to_empty(device=rank.device)
    for name, parameter in module.named_parameters():
        layer, _, rest = name.partition(".")
        known = f"{int(layer) + first}.{rest}"
        whole = _value(rank, places[known], known, wholes[known])
        local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
        local.copy_(_own_part(parameter, whole))


def _rows(rank: Rank, part: int) -> tuple[Tensor, Tensor]:
    """This rank's tokens and the ones that follow them: (rows, context) each."""
    settings = rank.settings
    source = torch.Generator().manual_seed(rank.seed)
    shape = (settings.batch_size, settings.context + 1)
    drawn = torch.randint(0, settings.vocabulary, shape, generator=source)
    own = drawn[part * settings.num_rows_per_rank :][: settings.num_rows_per_rank]
    tokens, targets = own[:, :-1].contiguous(), own[:, 1:].contiguous()
    tokens, targets = tokens.to(rank.device), targets.to(rank.device)
    rank.rows(tokens, targets)
    return tokens, targets


def _train(rank: Rank, module: nn.Module, step: Step, mesh: DeviceMesh | None = None) -> None:
    """Take steps, count the last metered one by axis, and say how large the loss was in each."""
    # The fused Adam refuses parameters of which some are cut along one axis and some along both.
    fused = rank.plan.strategy != "fsdp_tensor"
    optimizer = torch.optim.Adam(module.parameters(), lr=rank.settings.learning_rate, fused=fused)
    rank.watch(module, optimizer)
    axes = AxisMeter(mesh) if mesh is not None else None
    losses: list[float | None] = []
    for index in rank.steps(rank.settings.num_steps):
        counts = axes is not None and rank.is_metered and index == NUM_METERED_STEPS - 1
        with axes if counts and axes is not None else nullcontext():
            losses.append(step())
            with rank.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
        rank.count_samples(rank.settings.num_rows_per_rank)
    if axes is not None and rank.is_metered:
        for name, count in axes.measured().items():
            rank.measure(name, count)
    if not rank.is_metered:
        rank.measure("losses", _of_the_batch(rank, losses))


def _of_the_batch(rank: Rank, losses: list[float | None]) -> list[float]:
    """The loss of each step over the whole batch: the mean over the ranks that saw their part."""
    sums = torch.tensor([[loss or 0.0, float(loss is not None)] for loss in losses])
    sums = sums.double().to(rank.device)
    if dist.is_initialized():
        dist.all_reduce(sums)
    return [float(total / count) for total, count in sums]


def _whole_step(rank: Rank, model: nn.Module, part: int) -> Step:
    """Forward and backward of a model that takes its rows in one piece."""
    tokens, targets = _rows(rank, part)

    def step() -> float:
        with rank.phase("forward"):
            loss = next_token_loss(model(tokens), targets)
        with rank.phase("backward"):
            loss.backward()
        return loss.item()

    return step


def single(rank: Rank) -> None:
    """The oracle: one device, the whole model, the whole batch."""
    with rank.phase("build"):
        model = _unfilled(rank)
        _fill(rank, model)
    _train(rank, model, _whole_step(rank, model, 0))


def _square(rank: Rank, rows: str, columns: str) -> DeviceMesh:
    return init_device_mesh(rank.device.type, (SIDE, SIDE), mesh_dim_names=(rows, columns))


def _shard(rank: Rank, model: Transformer, mesh: DeviceMesh) -> None:
    """Every block by itself, then what is left: embeddings, last norm and head."""
    with rank.phase("wrap"):
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        _fill(rank, model)


def fsdp(rank: Rank) -> None:
    """In shards over all four ranks: one axis, for comparison."""
    mesh = init_device_mesh(rank.device.type, (rank.world_size,), mesh_dim_names=("shard",))
    model = _unfilled(rank)
    _shard(rank, model, mesh)
    _train(rank, model, _whole_step(rank, model, rank.rank), mesh)


def hsdp(rank: Rank) -> None:
    """In shards along one axis; what the shards' gradients come to is averaged along the other."""
    mesh = _square(rank, "replicate", "shard")
    model = _unfilled(rank)
    _shard(rank, model, mesh)
    _train(rank, model, _whole_step(rank, model, rank.rank), mesh)


def fsdp_tensor(rank: Rank) -> None:
    """Projections split along one axis; along the other, shards of what that leaves."""
    mesh = _square(rank, "shard", "tensor")
    model = _unfilled(rank)
    with rank.phase("wrap"):
        parallelize_module(model, mesh["tensor"], plan_of(rank.settings.num_layers))
    _shard(rank, model, mesh["shard"])
    _train(rank, model, _whole_step(rank, model, mesh.get_local_rank("shard")), mesh)


def ddp_pipeline(rank: Rank) -> None:
    """Two pipelines of two stages each; equal stages average their gradients."""
    settings = rank.settings
    mesh = _square(rank, "replicate", "pipeline")
    index = mesh.get_local_rank("pipeline")
    cut = 1 + settings.num_layers // SIDE
    layers = list(_unfilled(rank))
    with rank.phase("build"):
        own = nn.Sequential(*(layers[:cut] if index == 0 else layers[cut:]))
        _fill(rank, own, first=0 if index == 0 else cut)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(own, process_group=mesh.get_group("replicate"))
    group = mesh.get_group("pipeline")
    stage = PipelineStage(replica, index, SIDE, rank.device, group=group)
    schedule = Schedule1F1B(stage, settings.num_microbatches, loss_fn=next_token_loss)
    tokens, targets = _rows(rank, mesh.get_local_rank("replicate"))

    def step() -> float | None:
        losses: list[Tensor] = []
        with rank.phase("backward"):
            if index == 0:
                schedule.step(tokens, return_outputs=False)
            else:
                schedule.step(target=targets, losses=losses, return_outputs=False)
        return torch.stack(losses).mean().item() if losses else None

    _train(rank, replica, step, mesh)


STRATEGIES = {
    "single": single,
    "ddp_pipeline": ddp_pipeline,
    "fsdp_tensor": fsdp_tensor,
    "hsdp": hsdp,
    "fsdp": fsdp,
}
