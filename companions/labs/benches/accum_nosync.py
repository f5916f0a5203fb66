"""The bench of `accum_nosync`: gradient accumulation under DDP."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor, nn

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

PASSES = "forward passes"
LEARNING_RATE, MOMENTUM = 0.1, 0.9
SET_UP_BYTES = 1024  # shapes of parameters and order of buckets, which DDP sends once


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: updates, microbatches, a rank's samples in each, width."""
    return {
        "updates": draw.randrange(2, 5),
        "microbatches": draw.randrange(3, 6),
        "samples": draw.randrange(64, 96),
        "width": draw.randrange(16, 32),
    }


def _model(case: LabCase, dtype: torch.dtype) -> nn.Module:
    width = case.settings["width"]
    model = nn.Sequential(nn.Linear(width, 2 * width), nn.Tanh(), nn.Linear(2 * width, 1))
    with torch.no_grad():
        for place, parameter in enumerate(model.parameters()):
            drawn_values = torch.randn(parameter.shape, generator=case.generator(0, place))
            parameter.copy_(drawn_values / width**0.5)
    return model.to(dtype)


def _batches(case: LabCase, dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
    """The global batch of each update; each rank has an equal part of it."""
    settings = case.settings
    num_samples = case.world_size * settings["microbatches"] * settings["samples"]
    batches = []
    for update in range(settings["updates"]):
        numbers = case.generator(1, update)
        inputs = torch.randn(num_samples, settings["width"], generator=numbers)
        targets = torch.randn(num_samples, 1, generator=numbers)
        batches.append((inputs.to(dtype), targets.to(dtype)))
    return batches


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, a case's parameters after the reader's `train`, metered, and its forward passes."""
    model = _model(case, torch.float32)
    own = [
        (inputs.chunk(rank.world_size)[rank.rank], targets.chunk(rank.world_size)[rank.rank])
        for inputs, targets in _batches(case, torch.float32)
    ]
    model.register_forward_hook(lambda *_: num_passes.append(1))
    num_passes: list[int] = []
    with rank.metered({"batches": own}, trained={"model": model}):
        program.train(model, own, case.settings["microbatches"], LEARNING_RATE)
    return {**dict(model.named_parameters()), PASSES: torch.tensor(len(num_passes))}


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's parameters, by name, after SGD with momentum on the whole batch of each update."""
    model = _model(case, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    for inputs, targets in _batches(case, dtype):
        optimizer.zero_grad()
        (model(inputs) - targets).square().mean().backward()
        optimizer.step()
    return {name: value.detach() for name, value in model.named_parameters()}


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: one process's training; bytes all-reduced; peak; forward passes."""
    settings, n = case.settings, case.world_size
    num_bytes = sum(value.nbytes for value in _model(case, torch.float32).parameters())
    by_ring = (n - 1) / n * num_bytes
    broadcast, all_reduces = by_ring, 2 * settings["updates"] * by_ring
    # Backward through tanh holds its output and two gradients, each of 2 × width features.
    activations = ELEMENT_BYTES * settings["samples"] * 6 * settings["width"]
    gradients_buckets_momenta_and_one_freed_late = 4 * num_bytes
    return [
        laws.same_as_one_process(one_process, case),
        laws.sends_in_all(broadcast + all_reduces + SET_UP_BYTES),
        laws.holds_at_most(gradients_buckets_momenta_and_one_freed_late + activations),
        laws.counts("parts", PASSES, settings["updates"] * settings["microbatches"]),
    ]
