"""How a transformer is split by columns and rows, for the experiments that use tensor parallelism.

Every first projection is split by columns and every second by rows, as Megatron does. What DTensor
does with the input of a block's attention depends on where it is declared: once for the module,
or for each projection by itself, and then the gradient of the input is summed for each of them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

from runners.training.transformer import Transformer, TransformerShape

BY_COLUMNS = ("attention.query", "attention.key", "attention.value", "perceptron.up")
BY_ROWS = ("attention.out", "perceptron.down")


def split_block(block: nn.Module, mesh: DeviceMesh, *, shares_input: bool = True) -> None:
    """Split one block in place over a mesh of one dimension.

    Args:
        block: a `Block`; its norms stay whole.
        mesh: the ranks it is split over.
        shares_input: whether the input of attention is declared once for its three projections.
    """
    plan: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in BY_COLUMNS}
    plan |= {name: RowwiseParallel() for name in BY_ROWS}
    if shares_input:
        whole = (Replicate(),)
        plan["attention"] = PrepareModuleInput(
            input_layouts=whole, desired_input_layouts=whole, use_local_output=False
        )
    # Ranks hold equal parameters, so each takes its own part and nobody hands any out.
    parallelize_module(block, mesh, plan, src_data_rank=None)


def split_transformer(model: Transformer, mesh: DeviceMesh) -> None:
    """Split every block, and the two tables of the vocabulary; positions and norms stay whole."""
    for block in model.blocks:
        split_block(block, mesh)
    last = str(len(model) - 1)
    parallelize_module(
        model,
        mesh,
        {
            "0.tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()),
            f"{last}.scores": ColwiseParallel(output_layouts=Replicate()),
        },
        src_data_rank=None,
    )


def groups_of_a_kind(module: nn.Module) -> list[dict[str, Any]]:
    """Parameter groups for a fused optimizer, which refuses shards and whole tensors in one.

    Nor does it take shards of different meshes together.
    """
    kinds: defaultdict[object, list[nn.Parameter]] = defaultdict(list)
    for parameter in module.parameters():
        mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
        kinds[mesh].append(parameter)
    return [{"params": parameters} for parameters in kinds.values()]


def whole_block_parameters(shape: TransformerShape) -> int:
    """Parameters of a block that every rank keeps whole: two norms, the biases of split rows."""
    return 2 * 2 * shape.width + 2 * shape.width


def block_parameters_on_a_rank(shape: TransformerShape, num_ranks: int) -> int:
    """Parameters of a block that one rank holds when it is split over so many."""
    whole = whole_block_parameters(shape)
    return (shape.block_parameters() - whole) // num_ranks + whole
