"""The bench of `later_weights`: a thread writes checkpoints, more slowly than training goes on."""

from __future__ import annotations

import functools
import io
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import gelu, mse_loss

from proofbook.companions.labs import laws
from proofbook.companions.labs.disks import SlowDisk
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement
from proofbook.companions.labs.training import Batches, batches_of, initial_weights, trained
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

LEARNING_RATE = 0.5
WRITTEN, WAITED = "checkpoints", "writes for which training stood still"
ENDED_SECONDS = 2.0  # as Python waits at its end for threads, but not for ever
SAVES = 3


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: steps from save to save, samples of a rank, and sizes."""
    every, samples, width = draw.randrange(2, 4), draw.randrange(3, 6), draw.randrange(32, 48)
    sizes = {"samples": samples, "width": width, "hidden": draw.randrange(60, 90)}
    return {"every": every, "steps": SAVES * every, **sizes}


def _weights(case: LabCase, dtype: torch.dtype) -> dict[str, Tensor]:
    width, hidden = case.settings["width"], case.settings["hidden"]
    return initial_weights(case, {"up": (width, hidden), "down": (hidden, width)}, dtype)


def _batches(case: LabCase, dtype: torch.dtype) -> Batches:
    rows = case.world_size * case.settings["samples"]
    return batches_of(case, (rows, case.settings["width"]), dtype)


def _by_name(case: LabCase, weights_of: Callable[[int], Tensors]) -> dict[str, Tensor]:
    every, nothing = case.settings["every"], torch.zeros(0)
    return {
        f"`{name}` in the checkpoint of step {step}": weights_of(step).get(name, nothing)
        for step in range(every, case.settings["steps"] + 1, every)
        for name in ("up", "down")
    }


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, the weights of rank 0's checkpoints, how many there are, and how often it waited."""
    weights = {n: weight.requires_grad_() for n, weight in _weights(case, torch.float32).items()}
    parts = [[t.chunk(rank.world_size) for t in batch] for batch in _batches(case, torch.float32)]
    batches = [(inputs[rank.rank], targets[rank.rank]) for inputs, targets in parts]
    disk, before = SlowDisk(len(batches), case.settings["every"]), {*threading.enumerate()}
    threading.settrace(disk.begin_late)
    arguments = disk.followed(batches), LEARNING_RATE, case.settings["every"], disk.write
    with rank.metered({"batches": batches}, trained={"weights": weights}):
        program.train(weights, *arguments)
        for thread in {*threading.enumerate()} - before:
            if not thread.daemon:
                thread.join(ENDED_SECONDS)
    of_rank_0 = [dict(disk.files)]
    dist.broadcast_object_list(of_rank_0)
    read = {step: torch.load(io.BytesIO(file)) for step, file in of_rank_0[0].items()}
    counts = {WRITTEN: len(read), WAITED: disk.waited}
    of_steps = _by_name(case, lambda step: read.get(step, {}))
    return of_steps | {name: torch.tensor(count) for name, count in counts.items()}


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's weights, by name, after each step that is saved."""
    batches = _batches(case, dtype)
    after = functools.cache(
        lambda step: trained(_weights(case, dtype), batches[:step], _loss, LEARNING_RATE)
    )
    return _by_name(case, after)


def _loss(weights: Mapping[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
    return mse_loss(gelu(inputs @ weights["up"]) @ weights["down"], targets)


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: the weights of each step, while training goes on; one snapshot."""
    num_bytes = 2 * ELEMENT_BYTES * case.settings["width"] * case.settings["hidden"]
    return [
        laws.counts("written", WRITTEN, SAVES),
        laws.same_as_one_process(one_process, case),
        laws.counts("overlaps", WAITED, 0),
        laws.holds_at_most(5 * num_bytes / 2),
    ]
