"""The bench of `recompute`: blocks with dropout that keep only their inputs for backward."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType

import torch
import torch.utils.checkpoint
from torch import Tensor, nn

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

SINGLE_NUMBERS_BYTES = 64
WIDER = 4  # times as many hidden features
NUM_BLOCKS, NUM_TIMES = 4, 2  # blocks, and how often each runs in a forward pass
NUM_RUNS = NUM_BLOCKS * NUM_TIMES
NUM_STEPS = 2  # the second continues the random numbers of the first
DROPPED = 0.25
RUNS, BORROWED = "runs of blocks", "runs by `torch.utils.checkpoint`"
CHECKPOINT = torch.utils.checkpoint.__file__


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: tokens and width, drawn; fixed numbers of blocks and of times."""
    return {  # with which the peak shows a copy of the parameters, or a graph
        "num_tokens": draw.randrange(100, 150),
        "width": draw.randrange(30, 41),
        "num_blocks": NUM_BLOCKS,
        "num_times": NUM_TIMES,
    }


class DropoutBlock(nn.Module):
    """An MLP with dropout and a residual connection, which counts how often it runs."""

    def __init__(self, width: int, generator: torch.Generator, dtype: torch.dtype) -> None:
        super().__init__()
        self.first = nn.Linear(width, WIDER * width)
        self.second = nn.Linear(WIDER * width, width)
        self.num_runs = self.num_borrowed = 0
        self.to(dtype)
        with torch.no_grad():
            for parameter in self.parameters():
                numbers = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.copy_(numbers / parameter.shape[-1] ** 0.5)

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs plus their MLP, with dropout in training, drawn in float32; count the run."""
        self.num_runs += 1
        frames = (frame for frame, _ in traceback.walk_stack(None))
        self.num_borrowed += any(frame.f_code.co_filename == CHECKPOINT for frame in frames)
        hidden = torch.nn.functional.gelu(self.first(inputs))
        if self.training:
            hidden = hidden * (torch.rand(hidden.shape, dtype=torch.float32) >= DROPPED)
            hidden = hidden / (1 - DROPPED)
        outputs: Tensor = inputs + self.second(hidden)
        return outputs


def _blocks(case: LabCase, dtype: torch.dtype) -> list[DropoutBlock]:
    """Equal blocks on every rank; the last is in eval mode, like a part that is not trained."""
    width = case.settings["width"]
    blocks = [DropoutBlock(width, case.generator(block), dtype) for block in range(NUM_BLOCKS)]
    blocks[-1].eval()
    return blocks


def _inputs(case: LabCase, rank: int, dtype: torch.dtype) -> list[Tensor]:
    """The inputs of a rank for each step."""
    shape = NUM_STEPS, case.settings["num_tokens"], case.settings["width"]
    generator = case.generator(NUM_BLOCKS, rank)
    return [*normal(shape, generator, dtype)]


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, two steps' outputs, gradients, random numbers by the reader's `checkpoint`; runs."""
    blocks, inputs = _blocks(case, torch.float32), _inputs(case, rank.rank, torch.float32)
    # Results are copied into tensors that exist before metering, so they do not count.
    plain = _steps(_blocks(case, torch.float32), inputs, _plainly)
    results = {name: torch.full_like(tensor, torch.nan) for name, tensor in plain}
    torch.manual_seed(_seed(case, rank.rank))
    with rank.metered({"blocks": blocks, "inputs": inputs}):
        for name, tensor in _steps(blocks, inputs, program.checkpoint):
            results[name].copy_(tensor)
        del tensor
    return results | {
        RUNS: torch.tensor(sum(block.num_runs for block in blocks)),
        BORROWED: torch.tensor(sum(block.num_borrowed for block in blocks)),
    }


def _seed(case: LabCase, rank: int) -> int:
    return case.generator(rank).initial_seed()


def _steps(
    blocks: Sequence[DropoutBlock],
    inputs: Sequence[Tensor],
    run: Callable[[DropoutBlock, Tensor], Tensor],
) -> Iterator[tuple[str, Tensor]]:
    """Forward and backward of each step, through all blocks and then through all of them again."""
    for step, of_step in enumerate(inputs):
        outputs = of_step  # samples need no gradient
        for _ in range(NUM_TIMES):
            for block in blocks:
                outputs = run(block, outputs)
        yield f"outputs of step {step}", outputs.detach()
        backward(outputs.square().mean())
        for number in reversed(range(NUM_BLOCKS)):
            for name, parameter in blocks[number].named_parameters():
                gradient = gradient_of(parameter)
                yield f"gradient of block {number}, {name}, in step {step}", gradient
            blocks[number].zero_grad()
        yield f"random numbers after step {step}", torch.rand(NUM_STEPS, dtype=torch.float32)


def _plainly(block: DropoutBlock, inputs: Tensor) -> Tensor:
    outputs: Tensor = block(inputs)
    return outputs


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's outputs, gradients and random numbers of two steps, by name, stacked by rank."""
    of_ranks = []
    with torch.random.fork_rng(devices=[]):
        for rank in range(case.world_size):
            blocks, inputs = _blocks(case, dtype), _inputs(case, rank, dtype)
            torch.manual_seed(_seed(case, rank))
            of_ranks.append(dict(_steps(blocks, inputs, _plainly)))
    return {name: torch.stack([results[name] for results in of_ranks]) for name in of_ranks[0]}


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: one process's results; peak, bytes at the end; runs of blocks."""
    width = case.settings["width"]
    activation = ELEMENT_BYTES * case.settings["num_tokens"] * width
    parameters = ELEMENT_BYTES * width * (2 * WIDER * width + WIDER + 1)
    # Autograd saves nine activations inside a block: the hidden features before GELU and after
    # dropout, four each, and a mask with one byte for each hidden feature.
    inside = 2 * WIDER * activation + WIDER * activation / ELEMENT_BYTES
    states = (NUM_RUNS + 1) * torch.get_rng_state().nbytes
    peak = (NUM_RUNS + 1) * activation + 2 * inside + NUM_BLOCKS * parameters + states
    at_the_end = laws.keeps_at_most(SINGLE_NUMBERS_BYTES, "peak")
    runs = laws.counts("runs", RUNS, 2 * NUM_STEPS * NUM_RUNS)
    return [
        laws.same_as_one_process(one_process, case, lambda _, tensor, rank, __: tensor[rank]),
        laws.both(laws.holds_at_most(peak), at_the_end),
        laws.both(runs, laws.counts("runs", BORROWED, 0)),
    ]
