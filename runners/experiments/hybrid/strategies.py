"""Two ways of splitting a transformer at once, each along one axis of a square of ranks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.hybrid import SIDE, Settings
from runners.experiments.hybrid.training import samples_of, train, whole_step
from runners.experiments.hybrid.values import fill, unfilled
from runners.ranks.rank import Rank
from runners.training.split import blocks_plan
from runners.training.transformer_model import Transformer, next_token_loss


def hsdp(rank: Rank[Settings]) -> None:
    """Sharded along one axis; the gradients of the shards are averaged along the other."""
    mesh = _square(rank, "replicate", "shard")
    model = unfilled(rank)
    _shard(rank, model, mesh)
    train(rank, model, whole_step(rank, model, rank.rank), mesh)


def fsdp_tensor(rank: Rank[Settings]) -> None:
    """Projections split along one axis; along the other, shards of what that leaves."""
    mesh = _square(rank, "shard", "tensor")
    model = unfilled(rank)
    with rank.phase("wrap"):
        parallelize_module(model, mesh["tensor"], blocks_plan(rank.settings.num_layers))
    _shard(rank, model, mesh["shard"])
    train(rank, model, whole_step(rank, model, mesh.get_local_rank("shard")), mesh)


def ddp_pipeline(rank: Rank[Settings]) -> None:
    """Two pipelines of two stages each; equal stages average their gradients."""
    settings = rank.settings
    mesh = _square(rank, "replicate", "pipeline")
    index = mesh.get_local_rank("pipeline")
    cut = 1 + settings.num_layers // SIDE
    layers = list(unfilled(rank))
    own = nn.Sequential(*(layers[:cut] if index == 0 else layers[cut:]))
    fill(rank, own, first=0 if index == 0 else cut)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(own, process_group=mesh.get_group("replicate"))
    group = mesh.get_group("pipeline")
    stage = PipelineStage(replica, index, SIDE, rank.device, group=group)
    schedule = Schedule1F1B(stage, settings.num_microbatches, loss_fn=next_token_loss)
    tokens, targets = samples_of(rank, mesh.get_local_rank("replicate"))

    def step() -> float | None:
        losses: list[Tensor] = []
        with rank.phase("backward"):  # forwards of other microbatches are between
            if index == 0:
                schedule.step(tokens, return_outputs=False)
            else:
                schedule.step(target=targets, losses=losses, return_outputs=False)
        return torch.stack(losses).mean().item() if losses else None

    train(rank, replica, step, mesh)


def fsdp(rank: Rank[Settings]) -> None:
    """Sharded over all four ranks: one axis, for comparison."""
    mesh = init_device_mesh(rank.device.type, (rank.world_size,), mesh_dim_names=("shard",))
    model = unfilled(rank)
    _shard(rank, model, mesh)
    train(rank, model, whole_step(rank, model, rank.rank), mesh)


def single(rank: Rank[Settings]) -> None:
    """The oracle: one device, the whole model, the whole batch."""
    model = unfilled(rank)
    fill(rank, model)
    train(rank, model, whole_step(rank, model, 0))


def _square(rank: Rank[Settings], rows: str, columns: str) -> DeviceMesh:
    return init_device_mesh(rank.device.type, (SIDE, SIDE), mesh_dim_names=(rows, columns))


def _shard(rank: Rank[Settings], model: Transformer, mesh: DeviceMesh) -> None:
    """Every block by itself, then what is left: embeddings, last norm and head."""
    with rank.phase("wrap"):
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        fill(rank, model)


STRATEGIES = {
    "single": single,
    "ddp_pipeline": ddp_pipeline,
    "fsdp_tensor": fsdp_tensor,
    "hsdp": hsdp,
    "fsdp": fsdp,
}
