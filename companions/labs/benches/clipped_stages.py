"""The bench of `clipped_stages`: a pipeline whose gradient is clipped to a norm."""

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

LEARNING_RATE = 0.03
NUMBER_BYTES = 4
LARGE = 3.0  # scale of the first stage's inputs; its gradient is therefore the largest
HARD, EASY = 16, 6  # scales of targets, by step in turn
LIMIT = 0.7  # of the first norm; the norms of the later stages are below it
SET_UP_BYTES = 2048  # shapes, which a stage sends to its neighbours once


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: steps, microbatches (ranks or more), samples, width."""
    return {
        "steps": draw.randrange(3, 6),
        "microbatches": world_size + draw.randrange(3),
        "samples": draw.randrange(3, 6),
        "width": draw.randrange(24, 36),
    }


def _stage(case: LabCase, stage: int, dtype: torch.dtype) -> nn.Module:
    width, numbers = case.settings["width"], case.generator(0, stage)
    linear = nn.Linear(width, width)
    with torch.no_grad():
        weight = torch.randn(width, width, generator=numbers) / width**0.5
        linear.weight.copy_(weight / LARGE if stage == 0 else weight)
        linear.bias.copy_(torch.randn(width, generator=numbers) / width**0.5)
    return nn.Sequential(linear, nn.Tanh()).to(dtype)


def _batches(case: LabCase, dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
    settings = case.settings
    shape = (settings["microbatches"] * settings["samples"], settings["width"])
    batches = []
    for step in range(settings["steps"]):
        numbers = case.generator(1, step)
        inputs = LARGE * torch.randn(shape, generator=numbers)
        # Easy targets need no clipping, although the square of the norm is above the limit.
        targets = (EASY if step % 2 else HARD) * torch.randn(shape, generator=numbers).tanh()
        batches.append((inputs.to(dtype), targets.to(dtype)))
    return batches


def _gradient(stages: Sequence[nn.Module], batch: tuple[Tensor, Tensor]) -> list[Tensor]:
    model = nn.Sequential(*stages)
    inputs, targets = batch
    loss = (model(inputs) - targets).square().mean()
    return list(torch.autograd.grad(loss, list(model.parameters())))


def _norm(gradient: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.flatten() for part in gradient]).square().sum().sqrt()


def _limit(case: LabCase) -> float:
    stages = [_stage(case, stage, torch.float64) for stage in range(case.world_size)]
    return LIMIT * _norm(_gradient(stages, _batches(case, torch.float64)[0])).item()


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, a stage's weight and bias, and norms, after the reader's `train` on its rank."""
    stage, limit = _stage(case, rank.rank, torch.float32), _limit(case)
    batches = _batches(case, torch.float32)
    microbatches = case.settings["microbatches"]
    with rank.metered({"batches": batches}, trained={"stage": stage}):
        norms = program.train(stage, batches, microbatches, limit, LEARNING_RATE)
    weight, bias = stage.parameters()
    return {"norms": torch.tensor([float(norm) for norm in norms]), "weight": weight, "bias": bias}


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's parameters, stacked by stage, and norms, by name, after SGD on clipped gradients."""
    stages = [_stage(case, stage, dtype) for stage in range(case.world_size)]
    limit, norms = _limit(case), []
    for batch in _batches(case, dtype):
        gradient = _gradient(stages, batch)
        norms.append(_norm(gradient))
        factor = min(1.0, limit / norms[-1].item())
        values = [value for stage in stages for value in stage.parameters()]
        with torch.no_grad():
            for value, its_gradient in zip(values, gradient, strict=True):
                value.sub_(LEARNING_RATE * factor * its_gradient)
    weights, biases = zip(*(stage.parameters() for stage in stages), strict=True)
    return {
        "norms": torch.stack(norms),
        "weight": torch.stack(weights).detach(),
        "bias": torch.stack(biases).detach(),
    }


def of_its_stage(name: str, tensor: Tensor, rank: int, world_size: int) -> Tensor:
    """The part of a result that a rank returns: one stage, and the norms of all."""
    return tensor if name == "norms" else tensor[rank]


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: one process's training; bytes of activations, gradients, norms."""
    settings, n = case.settings, case.world_size
    samples = settings["microbatches"] * settings["samples"]
    activations = ELEMENT_BYTES * samples * settings["width"]
    neighbours = min(2, n - 1)  # the stages at the ends have one
    norm = 2 * (n - 1) / n * NUMBER_BYTES
    return [
        laws.same_as_one_process(one_process, case, of_its_stage),
        laws.sends_in_all(settings["steps"] * (neighbours * activations + norm) + SET_UP_BYTES),
    ]
