"""A checkpointed block against its formula."""

from __future__ import annotations

import torch

from runners.experiments.checkpointing import Block


def test_a_block_adds_what_it_computes_to_its_samples() -> None:
    block = Block(4, torch.device("cpu"))
    samples = torch.randn(3, 4)
    inside = torch.clamp(samples @ block.up.weight.T + block.up.bias, min=0)
    expected = samples + inside @ block.down.weight.T + block.down.bias
    torch.testing.assert_close(block(samples), expected)
