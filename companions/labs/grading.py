"""Run a reader's file against the bench of a lab, and say which requirements hold.

In: a lab, a file, a number of ranks, and the seeds of the cases. Out: each requirement, in order:
it holds, it fails, or it was not tried, because something before it ended the program.
"""

from __future__ import annotations

import importlib
import importlib.util
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal, Protocol

import torch
from torch import Tensor

from proofbook.companions.labs.shelf import LENT
from proofbook.runners.judging import comparison
from proofbook.runners.judging.comparison import Comparison, Tensors
from proofbook.runners.judging.ranks import JudgedRank, RankResult, run

LATE_SECONDS = (0.3, *[0.05] * 7)  # before the first calls of each kind; no rank hangs so soon
ELEMENT_BYTES = 4  # of float32, in which programs are tried
State = Literal["holds", "fails", "not tried"]


@dataclass(frozen=True)
class LabCase:
    """The seed, the number of ranks and the settings with which a program is tried."""

    seed: int  # of the settings and of all values
    world_size: int
    settings: Mapping[str, int]  # drawn by the bench, such as sizes

    def generator(self, *place: int) -> torch.Generator:
        """A generator of this case for each place, such as a rank and a step."""
        seed = random.Random(f"{self.seed} {place}").randrange(2**31)
        return torch.Generator().manual_seed(seed)


def normal(shape: Sequence[int], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Normal random numbers, the same in each precision but for rounding."""
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def gradient_of(tensor: Tensor) -> Tensor:
    """The gradient of a tensor; zero where it has none."""
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


@dataclass(frozen=True)
class Requirement:
    """A law that a program has to obey."""

    id: str  # its name in `lab.yml`, where its words are
    check: Callable[[Sequence[RankResult]], Iterable[Comparison]]
    allowed: float | None = None  # its value in this case, where it is a number: bytes, or a count


class Bench(Protocol):
    """The functions of a module of `benches/`."""

    __name__: str

    def drawn(self, draw: random.Random, world_size: int) -> Mapping[str, int]:
        """The settings of a case."""

    def attempt(self, rank: JudgedRank, program: ModuleType, case: LabCase) -> Tensors:
        """Call the reader's code on a rank, metered, and return the tensors to compare."""

    def one_process(self, case: LabCase, dtype: torch.dtype) -> Tensors:
        """The same tensors, computed in one process."""

    def requirements(self, case: LabCase) -> Sequence[Requirement]:
        """The laws, in the order in which a reader meets them.

        A bench may also list in `ALLOWED` the entries of `RankResult.beside` that it permits.
        """


@dataclass(frozen=True)
class GradedRequirement:
    """Whether a requirement holds, and the first difference if not."""

    id: str
    state: State
    allowed: float | None = None  # as of the requirement
    says: str = ""  # the first difference, in one line
    observed: float | None = None  # the measured value, where `allowed` is a number
    what: str = ""  # the tensor or the quantity that differs


@dataclass(frozen=True)
class Grade:
    """The grade of a file."""

    requirements: Sequence[GradedRequirement]
    ranks: Sequence[RankResult]  # of the case that decided
    case: LabCase

    @property
    def first_failed(self) -> GradedRequirement | None:
        """The first requirement that does not hold; the one that is explained."""
        return next((graded for graded in self.requirements if graded.state != "holds"), None)

    @property
    def is_solved(self) -> bool:
        """Whether every requirement holds."""
        return self.first_failed is None


def graded(bench: Bench, file: Path, world_size: int, seeds: Sequence[int]) -> Grade:
    """The `Grade` of a reader's file in a case of each seed, up to the first that fails."""
    for seed in seeds:
        case = case_of(bench, world_size, seed)
        ranks = run(attempt, world_size, bench.__name__, file, case, files=[file])
        grade = grade_of(bench, case, ranks)
        if not grade.is_solved:
            break
    return grade


def case_of(bench: Bench, world_size: int, seed: int) -> LabCase:
    """The case of a seed."""
    return LabCase(seed, world_size, bench.drawn(random.Random(seed), world_size))


def grade_of(bench: Bench, case: LabCase, ranks: Sequence[RankResult]) -> Grade:
    """The `Grade` of a case by ranks' results; no requirement is tried where a rank failed."""
    allowed: Sequence[str] = getattr(bench, "ALLOWED", ())
    everywhere = Requirement(LENT, lambda ranks: comparison.undisturbed(ranks, allowed))
    laws = [*bench.requirements(case), everywhere]
    failure = next((rank.failure for rank in ranks if rank.failure), None)
    if failure:  # it has to be explained, whatever other ranks returned
        says = failure.message
        graded = [GradedRequirement(law.id, "not tried", law.allowed, says) for law in laws]
    else:
        graded = [_graded_requirement(law, list(law.check(ranks))) for law in laws]
    return Grade(graded, ranks, case)


def _graded_requirement(law: Requirement, comparisons: Sequence[Comparison]) -> GradedRequirement:
    """A requirement by its first comparison that differs, else by the first that was not made."""
    states: dict[str, State] = {"differs": "fails", "not compared": "not tried", "agrees": "holds"}
    for compares, state in states.items():
        same = [compared for compared in comparisons if compared.state == compares]
        if same:
            decides = max(same, key=lambda compared: compared.observed or 0)
            observed = decides.observed if law.allowed is not None else None
            says, what = decides.says, decides.what
            return GradedRequirement(law.id, state, law.allowed, says, observed, what)
    return GradedRequirement(law.id, "not tried", law.allowed)


def attempt(rank: JudgedRank, bench: str, file: Path, case: LabCase) -> Mapping[str, Tensor]:
    """Load the reader's file, call `attempt` of the module named `bench`; return tensors by name.

    In each collective another rank is late, so that what does not wait reads old numbers.
    """
    rank.come_late(LATE_SECONDS)
    attempted: Tensors = importlib.import_module(bench).attempt(rank, loaded(file), case)
    return attempted


def loaded(file: Path) -> ModuleType:
    """A reader's file as a module, of this file alone: none beside it is found by name."""
    spec = importlib.util.spec_from_file_location(f"lab_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses of the file look it up
    spec.loader.exec_module(module)
    return module


def backward(loss: Tensor) -> None:
    """Run backward on a loss of what a reader's code returned; ValueError where it cannot start."""
    if not loss.requires_grad:
        raise ValueError(
            "what your function returned requires no gradient, so backward cannot start: autograd "
            "has to see a tensor that requires one among the arguments of what you call"
        )
    loss.backward()
