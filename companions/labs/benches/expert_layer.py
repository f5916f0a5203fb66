"""The bench of `expert_layer`: tokens travel to the experts of other ranks, and back."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor
from torch.nn.functional import gelu

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import (
    ELEMENT_BYTES,
    LabCase,
    Requirement,
    backward,
    gradient_of,
    normal,
)
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

COUNTS_BYTES = 16  # for each expert: two counts as int64


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: tokens and experts that ranks divide; rows of the busiest."""
    tokens, experts = (world_size * draw.randrange(*ends) for ends in ((8, 16), (2, 4)))
    rows = (_choices(tokens, experts) // (experts // world_size)).flatten().bincount()
    return {
        "tokens": tokens,
        "width": draw.randrange(12, 20),
        "experts": experts,
        "busiest": max(int(rows.max()), 2 * tokens // world_size),
    }


def _choices(tokens: int, experts: int) -> Tensor:
    """Two experts for each token, some of them popular; the last one is never chosen."""
    token = torch.arange(tokens)
    first = token.square() % (experts - 1)
    return torch.stack([first, (first + 1 + token % (experts - 2)) % (experts - 1)], 1)


def _whole(case: LabCase, dtype: torch.dtype) -> dict[str, Tensor]:
    """All tokens, the weights of their choices, and all experts, by name."""
    tokens, width, experts = (case.settings[name] for name in ("tokens", "width", "experts"))
    shapes = {"tokens": (tokens, width), "weights": (tokens, 2), "experts": (experts, width, width)}
    generator = case.generator()
    return {name: normal(shape, generator, dtype) for name, shape in shapes.items()}


def _results(outputs: Tensor, leaves: Mapping[str, Tensor]) -> Tensors:
    """The outputs, and the gradients of the sum of their squares."""
    backward(outputs.square().sum())
    gradients = {f"gradient of the {name}": gradient_of(leaf) for name, leaf in leaves.items()}
    return {"outputs": outputs.detach(), **gradients}


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, the outputs of the reader's `layer` for the rank's tokens, and its gradients."""
    choices = _choices(case.settings["tokens"], case.settings["experts"])
    own_choices = _own("", choices, rank.rank, case.world_size).clone()
    own = {
        name: _own(name, whole, rank.rank, case.world_size).clone().requires_grad_()
        for name, whole in _whole(case, torch.float32).items()
    }
    with rank.metered({**own, "choices": own_choices}):
        outputs = program.layer(own["tokens"], own_choices, own["weights"], own["experts"])
        return _results(outputs, own)


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's outputs and gradients, by name, with every expert applied to every token."""
    leaves = {name: leaf.requires_grad_() for name, leaf in _whole(case, dtype).items()}
    of_all = gelu(leaves["tokens"] @ leaves["experts"])  # (experts, tokens, width)
    choices = _choices(case.settings["tokens"], case.settings["experts"])
    chosen = of_all[choices, torch.arange(len(choices))[:, None]]
    return _results((chosen * leaves["weights"][:, :, None]).sum(1), leaves)


def _own(name: str, tensor: Tensor, rank: int, world_size: int) -> Tensor:
    return tensor.chunk(world_size)[rank]


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: outputs and gradients; chosen rows and counts; five calls."""
    settings = case.settings
    rows = 4 * ELEMENT_BYTES * settings["busiest"] * settings["width"]
    return [
        laws.same_as_one_process(one_process, case, _own),
        laws.sends({"all_to_all": rows + COUNTS_BYTES * settings["experts"]}),
        laws.calls(["all_to_all"] * 5),
    ]
