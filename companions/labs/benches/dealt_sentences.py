"""The bench of `dealt_sentences`: a loss per token under DDP, with padding and microbatches."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.nn import functional

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import LabCase, Requirement
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

PADDING = -100  # as a target; `cross_entropy` ignores it
LEARNING_RATE = 0.5
NUMBER_BYTES = 8
SET_UP_BYTES = 1024  # shapes of parameters and order of buckets, which DDP sends once


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: updates, microbatches, sentences, tokens, vocabulary, width."""
    return {
        "updates": draw.randrange(2, 4),
        "microbatches": draw.randrange(2, 5),
        "sentences": draw.randrange(2, 5),
        "tokens": draw.randrange(10, 20),
        "vocabulary": draw.randrange(40, 60),
        "width": draw.randrange(12, 24),
    }


def _model(case: LabCase, dtype: torch.dtype) -> nn.Module:
    vocabulary, width = case.settings["vocabulary"], case.settings["width"]
    model = nn.Sequential(nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary))
    with torch.no_grad():
        for place, parameter in enumerate(model.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=case.generator(0, place)) / 3)
    return model.to(dtype)


def _microbatch(case: LabCase, *place: int) -> tuple[Tensor, Tensor]:
    """Sentences of one to `tokens` tokens; where one ends, its targets are padding."""
    settings, numbers = case.settings, case.generator(1, *place)
    shape = (settings["sentences"], settings["tokens"])
    inputs = torch.randint(settings["vocabulary"], shape, generator=numbers)
    targets = torch.randint(settings["vocabulary"], shape, generator=numbers)
    lengths = torch.randint(1, shape[1] + 1, (shape[0], 1), generator=numbers)
    return inputs, targets.where(torch.arange(shape[1]) < lengths, PADDING)


def _update(case: LabCase, update: int, rank: int) -> list[tuple[Tensor, Tensor]]:
    return [
        _microbatch(case, update, rank, index) for index in range(case.settings["microbatches"])
    ]


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, a case's parameters and losses after the reader's `train` on this rank, metered."""
    model = _model(case, torch.float32)
    own = [_update(case, update, rank.rank) for update in range(case.settings["updates"])]
    with rank.metered({"updates": own}, trained={"model": model}):
        losses = program.train(model, own, LEARNING_RATE)
    logged = torch.tensor([float(loss) for loss in losses])
    return {**dict(model.named_parameters()), "losses": logged}


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's parameters and losses, by name, after SGD on the mean loss of all ranks' tokens."""
    model = _model(case, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    losses = []
    for update in range(case.settings["updates"]):
        parts = [part for rank in range(case.world_size) for part in _update(case, update, rank)]
        inputs, targets = (torch.cat(side) for side in zip(*parts, strict=True))
        is_token = targets != PADDING
        loss = functional.cross_entropy(model(inputs)[is_token], targets[is_token])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    values = {name: value.detach() for name, value in model.named_parameters()}
    return {**values, "losses": torch.stack(losses)}


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: one process's training; bytes of a gradient and counts."""
    num_bytes = sum(value.nbytes for value in _model(case, torch.float32).parameters())
    by_ring = (case.world_size - 1) / case.world_size
    all_reduces = 2 * case.settings["updates"] * (num_bytes + 2 * NUMBER_BYTES)
    sent = by_ring * (num_bytes + all_reduces)
    return [laws.same_as_one_process(one_process, case), laws.sends_in_all(sent + SET_UP_BYTES)]
