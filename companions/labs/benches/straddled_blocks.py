"""The bench of `straddled_blocks`: gathers in e4m3, with scales of blocks of rows."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement, normal
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

ALLOWED = ("object collective",)  # gloo sends e4m3 as bytes, in the dtype of objects
E4M3, LARGEST = torch.float8_e4m3fn, 448.0
EXPECTED = "in one process "


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: steps, rows of a rank, rows of a block, and the width."""
    steps, rows, width = draw.randrange(3, 6), draw.randrange(16, 24), draw.randrange(12, 24)
    return {"steps": steps, "rows": rows, "block": draw.choice([6, rows + 3]), "width": width}


def scale_of(largest: Tensor) -> Tensor:
    """Powers of two by which numbers are divided, so that these largest ones fit into e4m3."""
    return torch.ldexp(torch.ones_like(largest), (largest / LARGEST).frexp().exponent)


def _weight(case: LabCase, step: int) -> Tensor:
    """A weight whose rows differ in size, and in the sign of their largest number; it grows."""
    rows, generator = case.world_size * case.settings["rows"], case.generator(step)
    factors = 2.0 ** torch.randint(-8, 9, (rows, 1), generator=generator)
    factors *= 2**step * torch.tensor([1, -1])[torch.randint(2, (rows, 1), generator=generator)]
    return (normal((rows, case.settings["width"]), generator, factors.dtype).abs() - 0.5) * factors


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, the weights that the reader's `gathered` returns in each step, metered."""
    expected, block = one_process(case, torch.float32), case.settings["block"]
    weights = [_weight(case, step).chunk(case.world_size) for step in range(len(expected))]
    shards = [weight[rank.rank].clone() for weight in weights]
    with rank.metered({"shards": shards}):
        whole = [program.gathered(shard, block, scale_of).float() for shard in shards]
    wanted = {EXPECTED + name: one for name, one in expected.items()}
    return {**wanted, **dict(zip(expected, whole, strict=True))}


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's weights in e4m3 times the scales of their blocks, by name."""
    by_name = {}
    for step in range(case.settings["steps"]):
        blocks = _weight(case, step).split(case.settings["block"])
        scales = [scale_of(block.abs().max()) for block in blocks]
        numbers = [(block / scale).to(E4M3) for block, scale in zip(blocks, scales, strict=True)]
        parts = [one.to(dtype) * scale for one, scale in zip(numbers, scales, strict=True)]
        by_name[f"weight of step {step}"] = torch.cat(parts)
    return by_name


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: one process's weights; a byte a number, and a number a block."""
    (steps, rows, block, width), n = case.settings.values(), case.world_size
    largest = ELEMENT_BYTES * -(-n * rows // block)
    return [
        laws.same_to_the_bit(EXPECTED),
        laws.sends_in_all(steps * (n - 1) / n * (n * rows * width + n * largest)),
    ]
