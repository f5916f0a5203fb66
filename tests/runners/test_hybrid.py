"""Which meshes of ranks are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from runners.plans.experiment import find
from runners.training.transformer_model import Transformer, TransformerShape

pytestmark = pytest.mark.ranks


def model() -> Transformer:
    """The model of every run, without memory."""
    with torch.device("meta"):
        return Transformer(TransformerShape(64, 32, 64, 4, 2, 256))


@pytest.mark.parametrize(
    ("name", "changed", "said"),
    [
        ("hsdp", {"batch_size": 6}, "cannot be dealt out"),
        ("ddp_pipeline", {"num_microbatches": 3}, "cannot be dealt out"),
        ("fsdp_tensor", {"num_heads": 3}, "num_heads 3 cannot be split"),
        ("fsdp_tensor", {"num_heads": 6}, "not divisible by 6 heads"),
    ],
)
def test_what_the_square_cannot_share_out_is_refused(
    name: str, changed: dict[str, int], said: str
) -> None:
    plan = find("hybrid").runs[name]
    with pytest.raises(ValueError, match=said):
        replace(plan, settings=plan.settings.changed(changed))


def test_ranks_stay_a_square() -> None:
    with pytest.raises(ValueError, match="square"):
        replace(find("hybrid").runs["hsdp"], world_size=3)
