"""The bench of `exchanged_heads`: tokens are exchanged for heads, of which keys have few."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement, normal
from proofbook.companions.labs.sequences import attended, leaves_of, with_gradients
from proofbook.runners.judging.comparison import Tensors, first_rows
from proofbook.runners.judging.ranks import JudgedRank


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: tokens, heads; two ranks share a key head."""
    return {
        "tokens": world_size * draw.randrange(5, 10),
        "heads": world_size * draw.randrange(2, 4),
        "key_heads": world_size // 2,
        "width": 2 * draw.randrange(3, 6),
    }


def _whole(case: LabCase, dtype: torch.dtype) -> dict[str, Tensor]:
    tokens, heads, shared, width = case.settings.values()
    shapes = {"queries": heads, "keys": shared, "values": shared}
    return {
        name: normal((tokens, number, width), case.generator(at), dtype)
        for at, (name, number) in enumerate(shapes.items())
    }


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, the outputs of the reader's `attention` for the rank's tokens, and its gradients."""
    whole = _whole(case, torch.float32)
    own = leaves_of({name: one.chunk(case.world_size)[rank.rank] for name, one in whole.items()})
    with rank.metered(own):
        return with_gradients(program.attention(*own.values()), own)


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's outputs and gradients, by name, of the undivided sequence."""
    leaves = leaves_of(_whole(case, dtype))
    group = case.settings["heads"] // case.settings["key_heads"]
    queries, keys, values = (leaf.transpose(0, 1) for leaf in leaves.values())
    outputs = attended(queries, *(one.repeat_interleave(group, 0) for one in (keys, values)))
    return with_gradients(outputs.transpose(0, 1), leaves)


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: results; query heads, a key head for each rank; eight calls."""
    tokens, heads, _, width = case.settings.values()
    vectors = 2 * heads + 2 * case.world_size  # of a token, each way
    num_bytes = 2 * ELEMENT_BYTES * tokens // case.world_size * width * vectors
    return [
        laws.same_as_one_process(one_process, case, first_rows),
        laws.sends({"all_to_all": num_bytes}),
        laws.calls(["all_to_all"] * 8),
    ]
