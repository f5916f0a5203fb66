"""The bench of `vocabulary_loss`: cross-entropy of logits of which each rank has a part."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

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

LARGE = 300.0  # a logit whose exponential no float32 holds


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: tokens, and words of a vocabulary that ranks divide."""
    return {"tokens": draw.randrange(12, 20), "words": world_size * draw.randrange(40, 60)}


def _batch(case: LabCase, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Logits (tokens × words), of which some are large, and labels (tokens)."""
    shape, generator = (case.settings["tokens"], case.settings["words"]), case.generator()
    labels = torch.randint(case.settings["words"], shape[:1], generator=generator)
    logits = normal(shape, generator, dtype)
    logits[::3] += LARGE
    return logits, labels


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, the loss of the reader's `loss` and the gradient of the rank's logits."""
    whole, labels = _batch(case, torch.float32)
    logits = _own("logits", whole, rank.rank, case.world_size).clone().requires_grad_()
    with rank.metered({"logits": logits, "labels": labels}):
        value = program.loss(logits, labels)
        backward(value)
    return {"loss": value.detach().reshape(()), "gradient of the logits": gradient_of(logits)}


def _own(name: str, tensor: Tensor, rank: int, world_size: int) -> Tensor:
    """The part of the logits, or of their gradient, that a rank has; the loss is whole."""
    return tensor.chunk(world_size, 1)[rank] if "logits" in name else tensor


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's mean loss, and the gradient of all logits, by name."""
    logits, labels = _batch(case, dtype)
    logits.requires_grad_()
    value = cross_entropy(logits, labels)
    value.backward()
    return {"loss": value.detach(), "gradient of the logits": gradient_of(logits)}


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: loss and gradient; three numbers a token; three calls."""
    return [
        laws.same_as_one_process(one_process, case, _own),
        laws.sends({"all_reduce": 3 * ELEMENT_BYTES * case.settings["tokens"]}),
        laws.calls(["all_reduce"] * 3),
    ]
