"""The bench of `chunked_loss`: cross-entropy of which no rank holds all logits."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import LabCase, Requirement, normal
from proofbook.runners.judging.comparison import Tensors, first_rows, whole
from proofbook.runners.judging.ranks import JudgedRank

NAMES = "loss", "gradient of the hidden states", "gradient of the head"


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: tokens of a rank and of a chunk, words, and the width."""
    settings = {"tokens": (400, 450), "chunk": (10, 14), "words": (300, 400), "width": (12, 20)}
    return {name: draw.randrange(*limits) for name, limits in settings.items()}


def _batch(case: LabCase) -> list[Tensor]:
    """Hidden states, head and labels of all ranks; prompts without labels differ in length."""
    (tokens, chunk, words, width), n = case.settings.values(), case.world_size
    given = [
        normal((rows, width), case.generator(), torch.bfloat16) for rows in (n * tokens, words)
    ]
    labels = torch.randint(words, (n * tokens,), generator=case.generator(1))
    for rank, of_rank in enumerate(labels.chunk(n)):
        of_rank[: chunk * (2 + 8 * rank)] = -100
    return [*given, labels]


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, what the reader's `loss` returns on a rank, metered."""
    hidden, head, labels = _batch(case)
    hidden, labels = (one.chunk(case.world_size)[rank.rank].clone() for one in (hidden, labels))
    with rank.metered({"hidden": hidden, "head": head, "labels": labels}):
        returned = program.loss(hidden, head, labels, case.settings["chunk"])
    return dict(zip(NAMES, returned, strict=True))


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's mean loss and gradients, by name, of the logits of all tokens."""
    *given, labels = _batch(case)
    hidden, head = (one.to(dtype).requires_grad_() for one in given)
    loss = cross_entropy(hidden @ head.T, labels)
    gradients = torch.autograd.grad(loss, [hidden, head])
    return dict(zip(NAMES, [loss.detach(), *gradients], strict=True))


def _own(name: str, *given: Any) -> Tensor:
    return (first_rows if name == NAMES[1] else whole)(name, *given)


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: loss and gradients; logits of a chunk; the head's gradient, once."""
    tokens, chunk, words, width = case.settings.values()
    logits, head, hidden = (4 * one for one in (chunk * words, words * width, tokens * width))
    by_ring = 2 * (case.world_size - 1) / case.world_size
    return [
        laws.same_as_one_process(one_process, case, _own),
        laws.holds_at_most(4 * logits + 3 * head + 2 * hidden),
        laws.sends_in_all(by_ring * head + 64),
    ]
