"""A checkpointed block against its formula."""

from __future__ import annotations

import pytest
import torch

from runners.experiments.checkpointing import Cut
from runners.experiments.checkpointing.strategies import Block
from runners.plans.experiment import RunPlan
from runners.traces.records import Run


def activations(run: Run) -> int:
    """The most bytes that activations ever took."""
    memory = run.ranks[0].memory
    assert memory is not None
    assert memory.largest is not None
    return memory.largest.activations_bytes


def test_a_block_adds_what_it_computes_to_its_rows() -> None:
    block = Block(4, torch.device("cpu"))
    rows = torch.randn(3, 4)
    inside = torch.clamp(rows @ block.up.weight.T + block.up.bias, min=0)
    torch.testing.assert_close(block(rows), rows + inside @ block.down.weight.T + block.down.bias)


def test_segments_that_leave_a_rest_are_refused() -> None:
    with pytest.raises(ValueError, match="num_layers 16 cannot be cut into segments of 5"):
        RunPlan("recomputed", 1, Cut(segment_length=5))
