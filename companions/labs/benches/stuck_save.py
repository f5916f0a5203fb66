"""The bench of `stuck_save`: training under `fully_shard`, and the whole parameters at its end."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import LabCase, Requirement
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

LEARNING_RATE, MOMENTUM = 0.1, 0.9
ROWS = 12  # each layer has a multiple of these, so that 2, 3 and 4 ranks divide it
RETURNED = "parameters that only rank 0 has to return"
# Ranks may wait for the file, or hear about it; a mesh makes a group where there is an accelerator.
ALLOWED = ("barrier", "object collective", "new process group")
SET_UP_BYTES = 1024  # what rank 0 may send to the others when it saves


class BlockStack(nn.Module):
    """A stem, blocks, and a head."""

    def __init__(self, features: int, width: int, blocks: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Linear(features, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(blocks)
        )
        self.head = nn.Linear(width, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (samples × classes) of samples × features."""
        hidden = self.stem(inputs)
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.head(hidden)
        return logits


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: steps, samples, features, width that ranks divide, blocks."""
    return {
        "steps": draw.randrange(3, 6),
        "samples": draw.randrange(3, 6),
        "features": draw.randrange(10, 20),
        "width": ROWS * draw.randrange(2, 4),
        "blocks": draw.randrange(2, 4),
    }


def _model(case: LabCase, dtype: torch.dtype) -> BlockStack:
    settings = case.settings
    model = BlockStack(settings["features"], settings["width"], settings["blocks"], classes=ROWS)
    with torch.no_grad():
        for place, parameter in enumerate(model.parameters()):
            numbers = torch.randn(parameter.shape, generator=case.generator(0, place))
            parameter.copy_(numbers / parameter.shape[-1] ** 0.5)
    return model.to(dtype)


def _batch(case: LabCase, step: int, rank: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    settings, numbers = case.settings, case.generator(1, step, rank)
    inputs = torch.randn(settings["samples"], settings["features"], generator=numbers)
    return inputs.to(dtype), torch.randint(ROWS, (settings["samples"],), generator=numbers)


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, rank 0's parameters after the reader's `train`, and how many others returned."""
    model = _model(case, torch.float32)
    steps = range(case.settings["steps"])
    own = [_batch(case, step, rank.rank, torch.float32) for step in steps]
    with rank.metered({"batches": own}):
        saved = program.train(model, own, LEARNING_RATE)
    from_rank_0 = [saved if rank.rank == 0 else None]
    dist.broadcast_object_list(from_rank_0)
    parameters: dict[str, Tensor] = from_rank_0[0] or {}
    return parameters | {RETURNED: torch.tensor(len(saved or ()) if rank.rank else 0)}


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's parameters, by name, after SGD with momentum on the global batch of each step."""
    model = _model(case, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    for step in range(case.settings["steps"]):
        parts = [_batch(case, step, rank, dtype) for rank in range(case.world_size)]
        inputs, targets = (torch.cat(side) for side in zip(*parts, strict=True))
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    return {name: value.detach() for name, value in model.named_parameters()}


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: one process's training; FSDP's bytes; rank 0 alone saves."""
    num_bytes = sum(value.nbytes for value in _model(case, torch.float32).parameters())
    by_ring = (case.world_size - 1) / case.world_size * num_bytes
    gathers_of_a_step, reduce_scatters_of_a_step, saved = 2, 1, 1
    times = case.settings["steps"] * (gathers_of_a_step + reduce_scatters_of_a_step) + saved
    return [
        laws.same_as_one_process(one_process, case),
        laws.sends_in_all(times * by_ring + SET_UP_BYTES),
        laws.counts("returned", RETURNED, 0),
    ]
