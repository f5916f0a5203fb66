"""One rank of many: closed forms of what it holds, against shapes."""

from __future__ import annotations

import torch

from runners.training.shape import TransformerShape
from runners.training.transformer_model import Transformer

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
