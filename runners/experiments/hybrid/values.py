"""What parameters start with: the same values, whichever rank holds which part."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from runners.experiments.hybrid import Settings
from runners.ranks.rank import Rank
from runners.training.transformer_model import Transformer


def unfilled(rank: Rank[Settings]) -> Transformer:
    """The whole model without memory."""
    with torch.device("meta"):
        return Transformer(rank.settings.shape)


def _value(rank: Rank[Settings], place: int, name: str, shape: Iterable[int]) -> Tensor:
    """What one parameter starts with, whole: the same, whichever rank holds which part."""
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
def fill(rank: Rank[Settings], module: nn.Module, first: int = 0) -> None:
    """Give a module without memory the values it starts with.

    Args:
        rank: whose part it is.
        module: a `Transformer`, or some of its layers, perhaps split and sharded.
        first: the place in the whole model of the first of these layers.
    """
    places = {name: i for i, (name, _) in enumerate(unfilled(rank).named_parameters())}
    wholes = {name: p.shape for name, p in unfilled(rank).named_parameters()}
    module.to_empty(device=rank.device)
    for name, parameter in module.named_parameters():
        layer, _, rest = name.partition(".")
        known = f"{int(layer) + first}.{rest}"
        whole = _value(rank, places[known], known, wholes[known])
        local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
        local.copy_(_own_part(parameter, whole))
