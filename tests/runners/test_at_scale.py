"""One rank of many: the simulation against real ranks, and closed forms against shapes."""

from __future__ import annotations

import pytest
import torch

from runners.experiments.at_scale import RUNS
from runners.training.shape import TransformerShape
from runners.training.transformer_model import Block, Transformer

SHAPE = TransformerShape(64, 16, 32, 4, 3, 128)


def test_parameters_on_a_rank_are_those_of_the_model_dealt_out() -> None:
    model = Transformer(SHAPE, torch.device("meta"))
    whole = sum(p.numel() for p in model.parameters())
    assert SHAPE.parameters_on_a_rank(1, 1) == whole
    assert SHAPE.parameters_on_a_rank(8, 1) == whole // 8
    # Over four tensor ranks norms, positions and the biases that follow split rows stay whole.
    split = sum(
        p.numel()
        for name, p in model.named_parameters()
        if "norm" not in name
        and "positions" not in name
        and not name.endswith(("out.bias", "down.bias"))
    )
    assert SHAPE.parameters_on_a_rank(1, 4) == whole - split + split // 4


def test_what_a_block_keeps_for_backward_is_what_autograd_saves() -> None:
    block = Block(SHAPE)
    tokens = torch.randn(2, 16, 32, requires_grad=True)
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        return tensor

    weights = {p.untyped_storage()._cdata for p in block.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        block(tokens)
    saved = sum(size for place, size in kept.items() if place not in weights)
    assert saved == pytest.approx(4 * 2 * 16 * SHAPE.block_activations(), rel=0.01)


def test_seven_and_seventy_billion_are_what_they_are_called() -> None:
    for name, size in (("seven_fsdp_8", 7e9), ("seventy_tensor_8", 70e9)):
        assert RUNS[name].settings.shape.num_parameters() == pytest.approx(size, rel=0.05)
