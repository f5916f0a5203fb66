"""A block split over ranks by DTensor; the block as it is, on one device."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module

from runners.experiments.tensor_parallel import Settings
from runners.experiments.tensor_parallel.shown import compare, describe
from runners.ranks.rank import Rank
from runners.training.split import block_plan, groups_of_a_kind
from runners.training.transformer_model import Block


def split(rank: Rank[Settings], *, shares_input: bool = True) -> None:
    """Columns, then rows; the input of attention is declared once for its three projections."""
    block = _block(rank)
    describe(rank, block)
    mesh = init_device_mesh(rank.device.type, (rank.world_size,))
    with rank.phase("wrap"):
        # Ranks hold equal parameters, so each takes its own part and none are sent.
        parallelize_module(block, mesh, block_plan(shares_input=shares_input), src_data_rank=None)
    _train(rank, block)


def split_each(rank: Rank[Settings]) -> None:
    """The same split, but each projection declares its input for itself, as tutorials have it."""
    split(rank, shares_input=False)


def whole(rank: Rank[Settings]) -> None:
    """The block as it is, on one device."""
    block = _block(rank)
    describe(rank, block)
    _train(rank, block)


def _train(rank: Rank[Settings], block: Block) -> None:
    if not rank.is_metered:
        compare(rank, block, _block(rank), _input(rank), _input(rank))
    tokens = _input(rank)
    rank.inputs(tokens)
    optimizer = torch.optim.Adam(
        groups_of_a_kind(block), lr=rank.settings.learning_rate, fused=True
    )
    rank.watch(block, optimizer)
    for _ in rank.steps(rank.settings.num_steps):
        out = block(tokens)
        loss = out.square().mean()
        loss.backward()
        del out, loss
        optimizer.step()
        tokens.grad = None
        optimizer.zero_grad()


def _block(rank: Rank[Settings]) -> Block:
    """The whole block, with the same parameters on every rank."""
    torch.manual_seed(rank.seed)
    return Block(rank.settings.shape, rank.device)


def _input(rank: Rank[Settings]) -> Tensor:
    """The same samples on every rank; a block inside a model owes its input a gradient."""
    settings = rank.settings
    source = torch.Generator().manual_seed(rank.seed + 1)
    shape = (settings.num_samples, settings.length, settings.width)
    return torch.randn(shape, generator=source).to(rank.device).requires_grad_()


STRATEGIES = {"whole": whole, "split": split, "split_each": split_each}
