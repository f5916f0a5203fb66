"""Where `at_scale` still looks for what `training/split.py` and `training/shape.py` hold."""

from __future__ import annotations

from runners.training.shape import TransformerShape
from runners.training.split import groups_of_a_kind, split_transformer

__all__ = ["block_parameters_on_a_rank", "groups_of_a_kind", "split_transformer"]

block_parameters_on_a_rank = TransformerShape.block_parameters_on_a_rank
