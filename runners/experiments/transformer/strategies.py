"""One transformer under every strategy: the same parameters, batches and order of batches."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.transformer import Settings
from runners.experiments.transformer.shown import count_operations, describe
from runners.experiments.transformer.stages import Stage
from runners.experiments.transformer.training import train
from runners.experiments.transformer.writing import write
from runners.ranks.rank import Rank
from runners.training.split import blocks_plan
from runners.training.transformer_model import Transformer


def ddp(rank: Rank[Settings]) -> None:
    """A replica on every rank, which takes its share of each batch; gradients are averaged."""
    describe(rank)
    model = _whole(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model)
    text = train(rank, replica, _optimizer(rank, replica), _own_samples(rank))
    if rank.rank == 0 and not rank.is_metered:
        write(rank, model, text)


def fsdp(rank: Rank[Settings]) -> None:
    """Every parameter in shards; a block is gathered whole while it computes."""
    describe(rank, is_sharded=True)
    model = _whole(rank)
    mesh = init_device_mesh(rank.device.type, (rank.world_size,))
    with rank.phase("wrap"):
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    train(rank, model, _optimizer(rank, model), _own_samples(rank))


def tensor_parallel(rank: Rank[Settings]) -> None:
    """Every block's projections split: into it by columns, out of it by rows."""
    describe(rank, is_split=True)
    model = _whole(rank)
    mesh = init_device_mesh(rank.device.type, (rank.world_size,))
    with rank.phase("wrap"):
        parallelize_module(model, mesh, blocks_plan(rank.settings.num_layers))
    # Some parameters are shards and some are whole; the fused Adam refuses such a mixture.
    train(rank, model, _optimizer(rank, model, fused=False))


def pipelined(rank: Rank[Settings]) -> None:
    """Each rank holds some blocks; microbatches follow each other through them (GPipe)."""
    describe(rank, is_staged=True)
    stage = Stage(rank, _whole(rank))
    optimizer = _optimizer(rank, stage.layers)
    train(rank, stage.layers, optimizer, step=stage.step, grade_with=stage.grade)


def single(rank: Rank[Settings]) -> None:
    """The oracle: one device, the whole model, every batch whole."""
    describe(rank)
    model = _whole(rank)
    text = train(rank, model, _optimizer(rank, model))
    if not rank.is_metered:
        count_operations(rank, model, text)
        write(rank, model, text)


def _whole(rank: Rank[Settings]) -> Transformer:
    """The whole model, with the same parameters on every rank."""
    torch.manual_seed(rank.seed)
    return Transformer(rank.settings.shape, rank.device)


def _optimizer(
    rank: Rank[Settings], model: nn.Module, *, fused: bool = True
) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=rank.settings.learning_rate, fused=fused)


def _own_samples(rank: Rank[Settings]) -> slice:
    size = rank.settings.num_samples_per_rank
    return slice(rank.rank * size, (rank.rank + 1) * size)


STRATEGIES = {
    "single": single,
    "ddp": ddp,
    "fsdp": fsdp,
    "tensor_parallel": tensor_parallel,
    "pipelined": pipelined,
}
