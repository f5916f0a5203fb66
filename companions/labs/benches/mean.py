"""The bench of `mean`: gradients averaged in buckets."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType

import torch

from proofbook.companions.labs import laws
from proofbook.companions.labs.grading import ELEMENT_BYTES, LabCase, Requirement, normal
from proofbook.runners.judging.comparison import Tensors
from proofbook.runners.judging.ranks import JudgedRank

BUCKETS = 2  # the means of one, and one that gloo frees late


def drawn(draw: random.Random, world_size: int) -> Mapping[str, int]:
    """A case's settings, by name: an MLP's sizes, and a cap that two of its layers reach."""
    width = draw.randrange(64, 97)
    return {
        "width": width,
        "num_outputs": 2 * width + draw.randrange(8, 17),
        "num_hidden_layers": draw.choice([9, 11]),
        "cap_bytes": 2 * ELEMENT_BYTES * width * (width + 1),
    }


def _shapes(case: LabCase) -> Iterator[tuple[int, ...]]:
    """The shapes of the gradients, in the order in which backward computes them."""
    width, num_outputs = case.settings["width"], case.settings["num_outputs"]
    for num_rows in [num_outputs, *[width] * case.settings["num_hidden_layers"]]:
        yield (num_rows,)
        yield (num_rows, width)


def _gradients(case: LabCase, rank: int, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = case.generator(rank)
    return [normal(shape, generator, dtype) for shape in _shapes(case)]


def attempt(rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
    """By name, a rank's gradients after the reader's `average` has worked on them in place."""
    gradients = _gradients(case, rank.rank, torch.float32)
    passed = list(gradients)
    with rank.metered(trained={"gradients": gradients}):
        program.average(passed, case.settings["cap_bytes"], rank.world_size)
    return _by_name(gradients)


def one_process(case: LabCase, dtype: torch.dtype) -> Tensors:
    """A case's gradients, by name, each the mean over ranks."""
    of_ranks = [_gradients(case, rank, dtype) for rank in range(case.world_size)]
    return _by_name([torch.stack(same).mean(0) for same in zip(*of_ranks, strict=True)])


def _by_name(gradients: Sequence[torch.Tensor]) -> Tensors:
    return {f"gradient {index}": gradient for index, gradient in enumerate(gradients)}


def bucket_bytes(sizes: Sequence[int], cap_bytes: int) -> list[int]:
    """Bytes of each bucket: `sizes` in order, a new bucket once the last holds at least the cap."""
    buckets = [0]
    for size in sizes:
        if buckets[-1] >= cap_bytes:
            buckets.append(0)
        buckets[-1] += size
    return buckets


def requirements(case: LabCase) -> Sequence[Requirement]:
    """A case's requirements: means; bytes; an all-reduce of each bucket; peak of all in flight."""
    sizes = [ELEMENT_BYTES * torch.Size(shape).numel() for shape in _shapes(case)]
    buckets = bucket_bytes(sizes, case.settings["cap_bytes"])
    return [
        laws.same_as_one_process(one_process, case),
        laws.sends({"all_reduce": sum(sizes)}),
        laws.calls_exactly("all_reduce", buckets),
        laws.holds_at_most(sum(buckets) + BUCKETS * max(buckets)),
    ]
