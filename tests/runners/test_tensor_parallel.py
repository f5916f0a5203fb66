"""Tensor parallelism, against shapes, PyTorch's own counter and a block that nobody split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from runners.experiments.tensor_parallel import RUNS
from runners.traces.records import Run
from runners.training.transformer_model import Block, TransformerShape

pytestmark = pytest.mark.ranks
Measure = Callable[[str, str], Run]
SPLIT = [(512, 512), (512, 512), (512, 512), (512, 512), (2048, 512), (512, 2048)]


def held(num_ranks: int) -> int:
    """Parameters of a rank, added up from the shapes of the block's tensors."""
    weights = sum(a * b // num_ranks for a, b in SPLIT)
    split_biases = (3 * 512 + 2048) // num_ranks
    return weights + split_biases + 2 * 512 + 4 * 512


def test_the_closed_form_of_a_block_is_what_a_block_has() -> None:
    shape = TransformerShape(1, 1, 64, 4, 1, 256)
    assert shape.block_parameters_on_a_rank(1) == sum(
        p.numel() for p in Block(shape, torch.device("meta")).parameters()
    )


@pytest.mark.parametrize("name", ["ranks_2", "each_input_2"])
def test_a_rank_holds_its_share_and_computes_what_the_whole_block_does(
    run: Measure, name: str
) -> None:
    for rank in run("tensor_parallel", name).ranks:
        assert rank.num_parameters == held(2)
        for what in ("output", "input_gradient", "gradient"):
            assert float(str(rank.measures[f"{what}_difference"])) < 1e-6


def test_heads_that_cannot_be_dealt_out_are_refused() -> None:
    with pytest.raises(ValueError, match="num_heads 8 cannot be split over 3 ranks"):
        replace(RUNS["ranks_2"], world_size=3)
