"""The bench of `tokens`: a gradient accumulated over microbatches, and counted by tokens."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor, nn

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement, gradient_of
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

COUNT_BYTES = 8
PADDING = -100
WIDTH = 16
NUM_SEQUENCES = 3  # of a microbatch
OUTPUTS_IN_BACKWARD = 5  # logits, log-probabilities, the gradients of both, one freed late


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: words, the least microbatches and sequence length of ranks."""
    return {
        "num_words": draw.randrange(120, 150),
        "num_microbatches": draw.randrange(12, 15),
        "length": draw.randrange(7, 10),
    }


def _shape(case: LabCase, rank: int) -> tuple[int, int]:
    """How many microbatches a rank has, and how long its sequences are: two ranks always differ."""
    settings, place = case.settings, rank + case.seed
    num_more = place % min(3, case.world_size)
    length = settings["length"] + 6 * (place % case.world_size)
    return settings["num_microbatches"] + num_more, length


def _microbatches(case: LabCase, rank: int) -> list[tuple[Tensor, Tensor]]:
    """Inputs and targets; of one rank, the second microbatch is padding only."""
    num_microbatches, length = _shape(case, rank)
    generator, shape = case.generator(rank), (NUM_SEQUENCES, length)
    microbatches = []
    for index in range(num_microbatches):
        inputs = torch.randint(case.settings["num_words"], shape, generator=generator)
        targets = torch.randint(case.settings["num_words"], shape, generator=generator)
        ends = torch.randint(1, length + 1, (NUM_SEQUENCES, 1), generator=generator)
        is_left_out = torch.arange(length) >= ends
        if index == 1 and rank == case.seed % case.world_size:
            is_left_out[:] = True
        microbatches.append((inputs, targets.masked_fill(is_left_out, PADDING)))
    return microbatches


def _model(case: LabCase, dtype: torch.dtype) -> nn.Module:
    num_words, generator = case.settings["num_words"], case.generator()
    model = nn.Sequential(
        nn.Embedding(num_words, WIDTH),
        nn.Linear(WIDTH, WIDTH),
        nn.Tanh(),
        nn.Linear(WIDTH, num_words),
    )
    for parameter in model.parameters():
        drawn_values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data = drawn_values.to(dtype) / 2
    return model


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, the gradients that the reader's `accumulate` leaves in a rank's parameters."""
    model, microbatches = _model(case, torch.float32), _microbatches(case, rank.rank)
    with rank.metered({"microbatches": microbatches, "model": model}):
        program.accumulate(model, microbatches, rank.world_size)
    return _gradients(model)


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's gradients, by name, of the mean loss over all ranks' tokens that are no padding."""
    model, losses = _model(case, dtype), []
    for rank in range(case.world_size):
        for inputs, targets in _microbatches(case, rank):
            is_token = targets != PADDING
            of_words = model(inputs[is_token]).log_softmax(-1)
            losses.append(-of_words[torch.arange(len(of_words)), targets[is_token]])
    torch.cat(losses).mean().backward()
    return _gradients(model)


def _gradients(model: nn.Module) -> Tensors:
    return {name: gradient_of(parameter) for name, parameter in model.named_parameters()}


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: gradients; all-reduced bytes, with a count; a microbatch's peak."""
    parameters = _model(case, torch.float32).parameters()
    num_bytes = ELEMENT_BYTES * sum(parameter.numel() for parameter in parameters)
    length = max(_shape(case, rank)[1] for rank in range(case.world_size))
    outputs = ELEMENT_BYTES * NUM_SEQUENCES * length * case.settings["num_words"]
    return [
        laws.same_as_one_process(one_process, case),
        laws.sends({"all_reduce": num_bytes + COUNT_BYTES}),
        laws.holds_at_most(2 * num_bytes + OUTPUTS_IN_BACKWARD * outputs),
    ]
