"""How a transformer is split by columns and rows and sharded, for the experiments that do either.

Every first projection is split by columns and every second by rows, as Megatron does. What DTensor
does with the input of a block's attention depends on where it is declared: once for the module,
or for each projection by itself, and then the gradient of the input is summed for each of them.
"""

from collections import defaultdict
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

from proofbook.runners.training.transformer_model import SmallGPT

BY_COLUMNS = ("attention.query", "attention.key", "attention.value", "mlp.up")
BY_ROWS = ("attention.out", "mlp.down")


def block_plan(place: str = "", *, shares_input: bool = True) -> dict[str, ParallelStyle]:
    """The plan of a block for `parallelize_module`: `{name: style}`, by columns, then by rows.

    Names begin with `place`; norms stay whole. With `shares_input`, the input of attention is
    declared once for its three projections: backward adds their gradients, then sums over ranks.
    """
    plan: dict[str, ParallelStyle] = {f"{place}{name}": ColwiseParallel() for name in BY_COLUMNS}
    plan |= {f"{place}{name}": RowwiseParallel() for name in BY_ROWS}
    if shares_input:
        whole = (Replicate(),)
        plan[f"{place}attention"] = PrepareModuleInput(
            input_layouts=whole, desired_input_layouts=whole
        )
    return plan


def blocks_plan(num_layers: int) -> dict[str, ParallelStyle]:
    """`{name: style}`, the `block_plan`s of all blocks of a `SmallGPT`; the ends stay whole."""
    return {
        name: style
        for place in range(1, num_layers + 1)
        for name, style in block_plan(f"{place}.").items()
    }


def split_transformer(model: SmallGPT, mesh: DeviceMesh) -> None:
    """Split, in place, blocks and the vocabulary's two tables; positions and norms stay whole."""
    tables: dict[str, ParallelStyle] = {
        "0.tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()),
        f"{len(model) - 1}.scores": ColwiseParallel(output_layouts=Replicate()),
    }
    # Ranks hold equal parameters, so each takes its own part and none are sent.
    plan = blocks_plan(len(model.blocks)) | tables
    parallelize_module(model, mesh, plan, src_data_rank=None)


def shard_blocks(model: SmallGPT, mesh: DeviceMesh) -> None:
    """Let FSDP shard every block by itself, then what is left: embeddings, last norm and head."""
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def own_part(parameter: Tensor, whole: Tensor) -> Tensor:
    """This rank's part of `whole`, cut as the DTensor's placements say, the last axis first."""
    if not isinstance(parameter, DTensor):
        return whole
    mesh = parameter.device_mesh
    for axis in reversed(range(mesh.ndim)):
        dim = getattr(parameter.placements[axis], "dim", None)  # only what is split has one
        if dim is not None:
            whole = whole.chunk(mesh.size(axis), dim=dim)[mesh.get_local_rank(axis)]
    return whole


def groups_of_a_kind(module: nn.Module) -> list[dict[str, Any]]:
    """Parameter groups for an optimizer: one for each mesh of shards, one for whole tensors.

    A fused optimizer takes no shards beside whole tensors, nor shards of different meshes.
    """
    kinds: defaultdict[object, list[nn.Parameter]] = defaultdict(list)
    for parameter in module.parameters():
        mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
        kinds[mesh].append(parameter)
    return [{"params": parameters} for parameters in kinds.values()]
