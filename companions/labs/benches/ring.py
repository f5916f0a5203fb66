"""The bench of `ring`: an all-reduce from messages between neighbours."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType

import torch

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement
from proofbook.runners.judging.comparison import Tensors, messages
from proofbook.runners.judging.ranks import JudgedRank


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: a length that divides into a chunk for each rank."""
    return {"num_elements": world_size * draw.randrange(20_000, 40_000)}


def _tensor(case: LabCase, rank: int, dtype: torch.dtype) -> torch.Tensor:
    size, generator = case.settings["num_elements"], case.generator(rank)
    return torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, a rank's tensor after the reader's `all_reduce` has worked on it in place."""
    tensor = _tensor(case, rank.rank, torch.float32)
    with rank.metered(trained={"tensor": tensor}):
        program.all_reduce(tensor, rank.rank, rank.world_size)
    return {"sum": tensor}


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's sum over ranks, by name."""
    return {"sum": sum_of([_tensor(case, rank, dtype) for rank in range(case.world_size)])}


def sum_of(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum of tensors, added one after the other."""
    return torch.stack(list(tensors)).sum(0)


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: the sum; its bytes, to the next rank alone; a peak of two chunks."""
    num_bytes, n = ELEMENT_BYTES * case.settings["num_elements"], case.world_size
    by_ring = 2 * (n - 1) / n * num_bytes
    chunk = num_bytes / n
    to_the_next = Requirement("sends", lambda ranks: messages(ranks, lambda rank: (rank + 1) % n))
    return [
        laws.same_as_one_process(one_process, case),
        laws.both(laws.sends({"send": by_ring, "recv": by_ring}), to_the_next),
        laws.holds_at_most(2 * chunk),  # no thread of gloo holds messages
    ]
