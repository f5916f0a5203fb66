"""The bench of `carried_state`: a convolution and a recurrence over shards in head-tail order."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor
from torch.nn.functional import pad

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement, normal
from proofbook.companions.labs.sequences import head_tail, leaves_of, with_gradients
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

TAPS = 3  # tokens that the convolution sees
ROWS = TAPS - 1 + 2  # of a block that others need: its last inputs, its gates' product, its state


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: tokens that blocks divide, and channels."""
    return {
        "tokens": 2 * world_size * draw.randrange(6, 10),
        "channels": draw.randrange(8, 16),
    }


def scanned(inputs: Tensor, gates: Tensor) -> tuple[Tensor, Tensor]:
    """The states of `state = gate × state + input` from zero on, and the products of gates."""
    state, states = torch.zeros_like(inputs[0]), []
    for one, gate in zip(inputs, gates, strict=True):
        state = gate * state + one
        states.append(state)
    return torch.stack(states), gates.cumprod(0)


def _whole(case: LabCase, dtype: torch.dtype) -> tuple[dict[str, Tensor], Tensor]:
    """Inputs and gates (tokens × channels), by name; the taps of the convolution, latest first."""
    shape = tuple(case.settings.values())
    inputs, gates = (normal(shape, case.generator(at), dtype) for at in range(2))
    taps = normal((TAPS, shape[1]), case.generator(2), dtype)
    return {"inputs": inputs, "gates": (2 + gates).sigmoid()}, taps


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, the states that the reader's `layer` returns for the rank's tokens; gradients."""
    whole, taps = _whole(case, torch.float32)
    own = {name: head_tail(one, rank.rank, case.world_size) for name, one in whole.items()}
    leaves = leaves_of(own)
    with rank.metered({**leaves, "taps": taps}):
        return with_gradients(program.layer(*leaves.values(), taps, scanned), leaves)


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's states and gradients, by name, of the undivided sequence."""
    whole, taps = _whole(case, dtype)
    leaves = leaves_of(whole)
    tokens = len(whole["inputs"])
    padded = pad(leaves["inputs"], (0, 0, TAPS - 1, 0))
    shifted = [padded[TAPS - 1 - back :][:tokens] for back in range(TAPS)]
    convolved = (torch.stack(shifted) * taps[:, None]).sum(0)
    return with_gradients(scanned(convolved, leaves["gates"])[0], leaves)


def _own(_: str, tensor: Tensor, rank: int, world_size: int) -> Tensor:
    return head_tail(tensor, rank, world_size)


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: states and gradients; some rows of each block, once each way."""
    rows = 2 * 2 * ROWS * (case.world_size - 1)  # of two blocks of each other rank, in two passes
    return [
        laws.same_as_one_process(one_process, case, _own),
        laws.sends_in_all(ELEMENT_BYTES * rows * case.settings["channels"]),
    ]
