"""A transformer's block split by columns and by rows, over 1, 2 and 4 ranks.

The projections that come first are split by columns, those that follow by rows, so that a block
needs one sum over the ranks after attention and one after its mlp, and as many backward. How many
DTensor really makes is counted twice: by the memory meter and by PyTorch's `CommDebugMode`. Under
sequence parallelism, ranks divide the tokens of the rest of the block as well.

    python -m runners run tensor_parallel
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from proofbook.runners.api import Count, Declaration, Factor, RunSettings, Setting, closed_form
from proofbook.runners.closed_forms.shape import FLOAT_BYTES, TransformerShape
from proofbook.runners.training.networks import described, gradients_of
from proofbook.runners.training.rank import Rank
from proofbook.runners.training.split import block_plan, groups_of_a_kind
from proofbook.runners.training.transformer_model import GPTBlock


def split(rank: Rank[Settings], *, shares_input: bool = True, by_tokens: bool = False) -> None:
    """Build and train a block split by columns, then rows; compare it with a whole block.

    The input of attention is declared once for its three projections, or by each, as tutorials do.
    Under sequence parallelism, ranks also divide what is outside of attention and mlp `by_tokens`.
    """
    block = _block(rank)
    if rank.world_size > 1:
        mesh = init_device_mesh(rank.device.type, (rank.world_size,))
        with rank.phase("wrap"):
            # Ranks hold equal parameters, so each takes its own part and none are sent.
            plan = block_plan(shares_input=shares_input) | (_by_tokens() if by_tokens else {})
            parallelize_module(block, mesh, plan, src_data_rank=None)
    if not rank.is_metered:
        _compare(rank, block)
    tokens, rate = _own_tokens(rank, _input(rank)), rank.settings.learning_rate
    rank.inputs(tokens)
    optimizer = torch.optim.Adam(groups_of_a_kind(block), lr=rate, fused=True)
    rank.watch(block, optimizer)
    for _ in rank.steps(rank.settings.num_steps):
        out = block(tokens)
        loss = _loss(rank, out)
        loss.backward()
        del out, loss
        optimizer.step()
        tokens.grad = None
        optimizer.zero_grad()


def _by_tokens() -> dict[str, ParallelStyle]:
    """The styles that differ under sequence parallelism; tokens are dimension 1."""
    tokens = (Shard(1),)
    return {
        "attention_norm": SequenceParallel(),
        "mlp_norm": SequenceParallel(),
        "attention": PrepareModuleInput(input_layouts=tokens, desired_input_layouts=(Replicate(),)),
        "attention.out": RowwiseParallel(output_layouts=Shard(1)),
        "mlp.up": ColwiseParallel(input_layouts=Shard(1)),
        "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
    }


def _block(rank: Rank[Settings]) -> GPTBlock:
    """The whole block, with the same parameters on every rank."""
    torch.manual_seed(rank.seed)
    block = GPTBlock(rank.settings.shape, rank.device)
    rank.describe(described(block, rank.world_size, uncut="norm"))
    return block


def _input(rank: Rank[Settings]) -> Tensor:
    """The same samples on every rank, or its tokens; a block in a model owes input a gradient."""
    settings = rank.settings
    source = torch.Generator().manual_seed(rank.seed + 1)
    shape = (settings.num_samples, settings.length, settings.width)
    return torch.randn(shape, generator=source).to(rank.device).requires_grad_()


def _loss(rank: Rank[Settings], out: Tensor) -> Tensor:
    """The mean over all tokens of the batch, or a rank's share of it."""
    return out.square().sum() * FLOAT_BYTES / rank.settings.hidden_state_bytes


def _own_tokens(rank: Rank[Settings], tokens: Tensor) -> Tensor:
    """Its part of the tokens under sequence parallelism; else all of them."""
    if rank.settings.strategy != "sequence":
        return tokens
    return tokens.detach().chunk(rank.world_size, 1)[rank.rank].clone().requires_grad_()


def _compare(rank: Rank[Settings], block: GPTBlock) -> None:
    """Compare a block with one that is not split, and count the collectives of its two passes."""
    true, tokens, own = _block(rank), _input(rank), _own_tokens(rank, _input(rank))
    expected = true(tokens)
    _loss(rank, expected).backward()
    with CommDebugMode() as forward:
        out = block(own)
        loss = _loss(rank, out)
    with CommDebugMode() as backward:
        loss.backward()
    rank.measure("num_forward_collectives", forward.get_total_counts(), unit="calls")
    rank.measure("num_backward_collectives", backward.get_total_counts(), unit="calls")
    rank.measure("output_difference", _apart([out], [_own_tokens(rank, expected)]))
    assert tokens.grad is not None
    gradient = _own_tokens(rank, tokens.grad)
    rank.measure("input_gradient_difference", _apart([own.grad], [gradient]))
    rank.measure("gradient_difference", _apart(gradients_of(block), gradients_of(true)))
    block.zero_grad()


@torch.no_grad()
def _apart(mine: list[Any], true: list[Any]) -> float:
    """The largest difference, as a share of the largest value of all: some are but rounding."""
    gathered = [one.full_tensor() if isinstance(one, DTensor) else one for one in mine]
    difference = max((a - b).abs().max() for a, b in zip(gathered, true, strict=True))
    return float(difference / max(one.abs().max() for one in true))


QUESTION = (
    "What does splitting a transformer block over ranks save, and what must the ranks communicate?"
)


class Settings(RunSettings):
    """One block of a transformer, its tokens, and what each rank holds and sends."""

    width: Count = 512
    num_heads: Count = 8
    hidden: Count = 2048
    num_samples: Count = 2
    length: Count = 64
    num_steps: Count = 13
    learning_rate: Factor = 0.001
    equal_parts = (("width", "num_heads"), ("num_heads", "world_size"), ("hidden", "world_size"))

    @closed_form
    def hidden_state_bytes(self) -> int:
        """Bytes of all tokens' activations at a border of the block."""
        return FLOAT_BYTES * self.num_samples * self.length * self.width

    @closed_form
    def num_tokens_per_step(self) -> int:
        """Tokens of a step's samples."""
        return self.num_samples * self.length

    @property
    def shape(self) -> TransformerShape:
        """The block as a transformer of one layer, without a vocabulary."""
        return TransformerShape(1, 1, self.width, self.num_heads, 1, self.hidden)

    def closed_forms(self) -> dict[str, Setting]:
        """By name, of the settings: bytes of a block, whole, split, on a rank; numbers of sums."""
        num_whole = self.shape.whole_block_parameters()
        return {
            **super().closed_forms(),
            "whole_bytes": FLOAT_BYTES * num_whole,
            "split_bytes": FLOAT_BYTES * (self.shape.block_parameters() - num_whole),
            "held_bytes": FLOAT_BYTES * 4 * self.shape.block_parameters_on_a_rank(self.world_size),
            # In backward through attention's last first projection: the input, its norm's output,
            # the block's output, the gradient that passes attention by, that of the norm's output
            # so far, and what is added to it.
            "num_whole_activations": 6,
            "normalization_bytes": FLOAT_BYTES * 4 * self.width,  # a weight and a bias of each
            "num_forward_sums": 2,  # after attention and after the mlp
            # For each declared input.
            "num_backward_sums": 4 if self.strategy == "split_each" else 2,
        }


STRATEGIES = {
    "whole": split,
    "split_each": partial(split, shares_input=False),
    "sequence": partial(split, by_tokens=True),
}
run = partial(Declaration, label="tensor_parallel", settings=Settings(), can_share_device=False)
RUNS = {
    "ranks_1": run("whole"),
    "ranks_2": run("split", 2),
    "ranks_4": run("split", 4),
    "each_input_2": run("split_each", 2),
    "sequence_2": run("sequence", 2),
    "sequence_4": run("sequence", 4),
}
TRIED_WITH = {"*": {"num_steps": 4}}
ON_CUDA = {"*": {"width": 8192, "num_heads": 64, "hidden": 32768, "num_samples": 4, "length": 2048}}
