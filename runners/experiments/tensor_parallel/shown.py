"""What the trace of `tensor_parallel` shows of a block: its layers, and how far it is from whole.

In: a rank and its block. Out: the model's description; differences and counts of collectives.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode

from runners.experiments.tensor_parallel import Settings
from runners.ranks.rank import Rank
from runners.traces.records import Layer, Model
from runners.training.transformer_model import Block


def describe(rank: Rank[Settings], block: Block) -> None:
    """Each projection and norm, and whether ranks hold parts of it."""
    layers = [
        Layer(
            name=name,
            kind=type(module).__name__,
            weight_shape=list(module.weight.shape),
            num_parameters=sum(p.numel() for p in module.parameters()),
            bytes=sum(p.nbytes for p in module.parameters()),
            ranks=list(range(rank.world_size)),
            is_sharded=rank.world_size > 1 and not name.endswith("norm"),
        )
        for name, module in block.named_modules()
        if not list(module.children())
    ]
    rank.describe(
        Model(
            num_parameters=sum(layer.num_parameters for layer in layers),
            bytes=sum(layer.bytes for layer in layers),
            dtype="float32",
            layers=layers,
        )
    )


def compare(rank: Rank[Settings], block: Block, true: Block, tokens: Tensor, own: Tensor) -> None:
    """Compare a block with one that is not split, and count the collectives of its two passes.

    Args:
        rank: whose block it is.
        block: of this rank; its gradients are cleared afterwards.
        true: the same block, whole.
        tokens: the input of the whole block: (num_samples, length, width).
        own: the same input for this rank's block.
    """
    expected = true(tokens)
    expected.square().mean().backward()
    with CommDebugMode() as forward:
        out = block(own)
        loss = out.square().mean()
    with CommDebugMode() as backward:
        loss.backward()
    gradients = [
        (mine.grad, whole.grad)
        for mine, whole in zip(block.parameters(), true.parameters(), strict=True)
    ]
    rank.measure("num_forward_collectives", forward.get_total_counts())
    rank.measure("num_backward_collectives", backward.get_total_counts())
    rank.measure("output_difference", _apart([(out, expected)]))
    rank.measure("input_gradient_difference", _apart([(own.grad, tokens.grad)]))
    rank.measure("gradient_difference", _apart(gradients))
    block.zero_grad()


@torch.no_grad()
def _apart(pairs: Sequence[tuple[Tensor | None, Tensor | None]]) -> float:
    """The largest difference between mine and true, as a share of the largest true value of all.

    Of all, since some gradients are nothing but rounding: a key's bias moves no softmax.
    """
    differences, sizes = [], []
    for mine, true in pairs:
        assert mine is not None
        assert true is not None
        differences.append((_whole(mine) - true).abs().max())
        sizes.append(true.abs().max())
    return float(torch.stack(differences).max() / torch.stack(sizes).max())


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
