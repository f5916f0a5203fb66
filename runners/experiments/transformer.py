"""A small GPT on real text: one training, and the strategies that all should arrive at it.

The text is sources of Python's standard library, a byte a token. The same global batches in the
same order train a transformer on one device, under DDP, under FSDP, with tensor parallelism and
cut into the stages of a pipeline. Beside the loss curves: what each rank holds and sends, held-out
text, what the model writes, and the operations of a step, counted and by the closed form.

    python -m runners run transformer
"""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from runners.experiments._transformer_plans import (
    CHOICES,
    ON_CUDA,
    RUNS,
    TRIED_WITH,
    forecast,
    settle,
    shape_of,
)
from runners.experiments._transformer_step import (
    Stage,
    count_operations,
    described,
    train,
    whole_step,
)
from runners.experiments._transformer_text import write
from runners.ranks.rank import Rank
from runners.training.transformer import Transformer

__all__ = [
    "CHOICES",
    "ON_CUDA",
    "QUESTION",
    "RUNS",
    "STRATEGIES",
    "TRIED_WITH",
    "forecast",
    "settle",
]

QUESTION = "Does a transformer learn the same under every strategy, and what does each cost?"


def _whole(rank: Rank) -> Transformer:
    """The whole model, with the same parameters on every rank."""
    with rank.phase("build"):
        torch.manual_seed(rank.seed)
        return Transformer(shape_of(vars(rank.settings)), rank.device)


def _optimizer(rank: Rank, model: nn.Module, *, fused: bool = True) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=rank.settings.learning_rate, fused=fused)


def _own_rows(rank: Rank) -> slice:
    size = rank.settings.global_batch_size // rank.world_size
    return slice(rank.rank * size, (rank.rank + 1) * size)


def single(rank: Rank) -> None:
    """The oracle: one device, the whole model, every batch whole."""
    described(rank)
    model = _whole(rank)
    text = train(rank, model, _optimizer(rank, model), whole_step, slice(None))
    if not rank.is_metered:
        count_operations(rank, model, text)
        write(rank, model, text)


def ddp(rank: Rank) -> None:
    """A replica on every rank, which takes its share of each batch; gradients are averaged."""
    described(rank)
    model = _whole(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model)
    text = train(
        rank, replica, _optimizer(rank, replica), whole_step, _own_rows(rank), averages=True
    )
    if rank.rank == 0 and not rank.is_metered:
        write(rank, model, text)


def fsdp(rank: Rank) -> None:
    """Every parameter in shards; a block is gathered whole while it computes."""
    described(rank, is_sharded=True)
    model = _whole(rank)
    mesh = init_device_mesh(rank.device.type, (rank.world_size,))
    with rank.phase("wrap"):
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    train(rank, model, _optimizer(rank, model), whole_step, _own_rows(rank), averages=True)


def tensor_parallel(rank: Rank) -> None:
    """Every block's projections split: into it by columns, out of it by rows."""
    described(rank, is_split=True)
    model = _whole(rank)
    mesh = init_device_mesh(rank.device.type, (rank.world_size,))
    with rank.phase("wrap"):
        parallelize_module(model, mesh, plan_of(rank.settings.num_layers))
    # Some parameters are shards and some are whole; the fused Adam refuses such a mixture.
    train(rank, model, _optimizer(rank, model, fused=False), whole_step, slice(None))


def plan_of(num_layers: int) -> dict[str, ParallelStyle]:
    """How each projection is split, by its place in the model.

    Attention's input is taken over once for query, key and value together, so that the backward
    pass adds their three gradients up before it asks the other ranks for theirs.
    """
    plan: dict[str, ParallelStyle] = {}
    for place in range(1, num_layers + 1):
        for name in ("attention.query", "attention.key", "attention.value", "perceptron.up"):
            plan[f"{place}.{name}"] = ColwiseParallel()
        for name in ("attention.out", "perceptron.down"):
            plan[f"{place}.{name}"] = RowwiseParallel()
        plan[f"{place}.attention"] = PrepareModuleInput(
            input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),)
        )
    return plan


def pipelined(rank: Rank) -> None:
    """Each rank holds some blocks; the parts of a batch follow each other through them (GPipe)."""
    described(rank, is_staged=True)
    stage = Stage(rank, _whole(rank))
    train(rank, stage.layers, _optimizer(rank, stage.layers), stage.step, slice(None), stage.grade)


STRATEGIES = {
    "single": single,
    "ddp": ddp,
    "fsdp": fsdp,
    "tensor_parallel": tensor_parallel,
    "pipelined": pipelined,
}
