"""The closed forms of a split block, against shapes and a block that nobody split."""

from __future__ import annotations

import pytest
import torch

from runners.training.transformer_model import Block, TransformerShape

SHAPE = TransformerShape(1, 1, 512, 8, 1, 2048)
SPLIT = [(512, 512), (512, 512), (512, 512), (512, 512), (2048, 512), (512, 2048)]


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_a_rank_holds_its_share_added_up_from_the_shapes_of_tensors(num_ranks: int) -> None:
    weights = sum(a * b // num_ranks for a, b in SPLIT)
    split_biases = (3 * 512 + 2048) // num_ranks
    held = weights + split_biases + 2 * 512 + 4 * 512
    assert SHAPE.block_parameters_on_a_rank(num_ranks) == held


def test_the_closed_form_of_a_block_is_what_a_block_has() -> None:
    block = Block(SHAPE, torch.device("meta"))
    assert SHAPE.block_parameters() == sum(p.numel() for p in block.parameters())
