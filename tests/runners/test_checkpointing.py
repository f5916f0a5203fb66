"""Checkpointing against hand-counted products and borders, and a stack that keeps everything."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from runners.experiments.checkpointing import Cut
from runners.experiments.checkpointing.strategies import Block
from runners.plans.experiment import RunPlan
from runners.traces.records import Run

Measure = Callable[[str, str], Run]
BORDER_BYTES = 4 * 512 * 32
PRODUCT_FLOPS = 2 * 512 * 32 * 128


def activations(run: Run) -> int:
    """The most bytes that activations ever took."""
    memory = run.ranks[0].memory
    assert memory is not None
    assert memory.largest is not None
    return memory.largest.activations_bytes


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("name", "borders"),
    [
        ("kept_9", 9 * 5 + 8),
        ("root_9", 3 + 3 * 5 + 7),
        ("each_9", 9 + 1 * 5 + 7),
        ("root_36", 6 + 6 * 5 + 7),
        ("each_36", 36 + 1 * 5 + 7),
        ("least_36", 12 + 3 * 5 + 7),
    ],
)
def test_activations_peak_at_borders_and_one_segment(run: Measure, name: str, borders: int) -> None:
    assert activations(run("checkpointing", name)) == pytest.approx(borders * BORDER_BYTES, abs=64)


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("name", "products"),
    [
        ("kept_16", 6 * 16 - 1),
        ("root_16", 8 * 16 - 1 - 4),
        ("each_16", 8 * 16 - 1 - 16),
        ("each_16_to_the_end", 8 * 16 - 1),
    ],
)
def test_products_are_computed_again_but_for_the_last_of_each_segment(
    run: Measure, name: str, products: int
) -> None:
    measures = run("checkpointing", name).ranks[0].measures
    assert measures["num_flops"] == products * PRODUCT_FLOPS


@pytest.mark.ranks
def test_gradients_do_not_depend_on_the_cut(run: Measure) -> None:
    shown = [
        run("checkpointing", name).ranks[0].measures for name in ("kept_9", "root_9", "each_9")
    ]
    assert len({str(one["gradient_digest"]) for one in shown}) == 1
    assert {one["num_gradients"] for one in shown} == {9 * 4}


def test_a_block_adds_what_it_computes_to_its_rows() -> None:
    block = Block(4, torch.device("cpu"))
    rows = torch.randn(3, 4)
    inside = torch.clamp(rows @ block.up.weight.T + block.up.bias, min=0)
    torch.testing.assert_close(block(rows), rows + inside @ block.down.weight.T + block.down.bias)


def test_segments_that_leave_a_rest_are_refused() -> None:
    with pytest.raises(ValueError, match="num_layers 16 cannot be cut into segments of 5"):
        RunPlan("recomputed", 1, Cut(segment_length=5))
