"""The bench of `edges_of_shards`: rotary positions and next tokens of a divided sequence."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement
from proofbook.companions.labs.sequences import OPERATIONS, attended, leaves_of
from proofbook.companions.labs.training import initial_weights
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

SINGLE_NUMBERS_BYTES = 64  # such as a loss that a program adds up over the ranks
LARGE = 4.0  # a factor of the embedding, by which attention tells tokens apart
BASE = 10.0  # of the angles by which neighbouring tokens are rotated


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: tokens that ranks divide, words, and the width."""
    return {
        "tokens": world_size * draw.randrange(5, 9),
        "words": draw.randrange(12, 20),
        "width": 2 * draw.randrange(4, 7),
    }


def rotated(vectors: Tensor, positions: Tensor) -> Tensor:
    """Vectors (tokens × width), each rotated by the angles of its token's position."""
    half = vectors.shape[1] // 2
    angles = positions[:, None] / BASE ** (torch.arange(half, dtype=vectors.dtype) / half)
    first, second = vectors.chunk(2, 1)
    cosines, sines = angles.cos(), angles.sin()
    return torch.cat([first * cosines - second * sines, first * sines + second * cosines], 1)


def _given(case: LabCase, dtype: torch.dtype) -> tuple[dict[str, Tensor], Tensor]:
    tokens, words, width = case.settings.values()
    shapes = {"embedding": (words, width), "projection": (width, 3 * width), "head": (width, words)}
    drawn_tokens = torch.randint(words, (tokens,), generator=case.generator(1))
    weights = initial_weights(case, shapes, dtype)
    weights["embedding"] *= LARGE
    return weights, drawn_tokens


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, the loss and the gradients that the reader's `step` returns, and its operations."""
    weights, tokens = _given(case, torch.float32)
    lent = {"weights": weights, "tokens": tokens}
    with rank.metered(lent), FlopCounterMode(display=False) as counter:
        loss, gradients = program.step(weights, tokens, rotated)
    counted = {OPERATIONS: torch.tensor(counter.get_total_flops())}
    return {"loss": torch.tensor(float(loss)), **_named(gradients), **counted}


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's mean loss and gradients, by name, of the undivided sequence."""
    weights, tokens = _given(case, dtype)
    own, positions = leaves_of(weights), torch.arange(len(tokens))
    vectors = own["embedding"][tokens]
    queries, keys, values = (vectors @ own["projection"]).chunk(3, 1)
    turned = rotated(queries, positions), rotated(keys, positions)
    outputs = attended(*(one[None] for one in (*turned, values)))[0]
    loss = cross_entropy(((vectors + outputs) @ own["head"])[:-1], tokens[1:])
    gradients = torch.autograd.grad(loss, [*own.values()])
    return {"loss": loss.detach(), **_named(dict(zip(own, gradients, strict=True)))}


def _named(gradients: Mapping[str, Tensor]) -> Tensors:
    return {f"gradient of the {name}": one for name, one in gradients.items()}


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: loss and gradients; gathers and sums; the work of its own tokens."""
    tokens, words, width = case.settings.values()
    keys, weights = tokens * width, 2 * words * width + 3 * width**2
    own_tokens = tokens // case.world_size
    operations = 6 * own_tokens * width * (3 * width + 2 * tokens + words)  # in both passes
    by_ring = ELEMENT_BYTES * (case.world_size - 1) / case.world_size
    return [
        laws.same_as_one_process(one_process, case),
        laws.sends_in_all(by_ring * (4 * keys + 2 * weights) + SINGLE_NUMBERS_BYTES),
        laws.counts("divides", OPERATIONS, operations, or_less=True),
    ]
