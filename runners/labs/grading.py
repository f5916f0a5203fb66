"""Run a reader's file against the bench of a lab, and say which requirements hold.

In: a lab, a file, a number of ranks, and the seeds of the cases. Out: a row for each requirement,
in order: it holds, it fails, or it was not tried, because something before it ended the program.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import itertools
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from runners.judging import comparison
from runners.judging.comparison import Comparison, Tensors, as_bytes, sent_over_a_ring
from runners.judging.ranks import JudgedRank, RankResult, run
from runners.labs.shelf import LENT

LATE_SECONDS = (0.3, *[0.05] * 7)  # before the first calls of each kind; no rank hangs so soon
State = Literal["holds", "fails", "not tried"]


@dataclass(frozen=True)
class Case:
    """What a program is tried with.

    Attributes:
        seed: of the settings and of all values.
        world_size: the number of ranks.
        settings: drawn by the bench, such as sizes.
    """

    seed: int
    world_size: int
    settings: Mapping[str, int]

    def generator(self, *place: int) -> torch.Generator:
        """Random numbers of this case, other ones for each place, such as a rank and a step."""
        seed = random.Random(f"{self.seed} {place}").randrange(2**31)
        return torch.Generator().manual_seed(seed)


@dataclass(frozen=True)
class Requirement:
    """A law that a program has to obey.

    Attributes:
        id: its name in `lab.yml`, where its words are.
        check: compares what ranks did with it.
        allowed: its value in this case, where it is a number: bytes, or a count.
    """

    id: str
    check: Callable[[Sequence[RankResult]], Iterable[Comparison]]
    allowed: float | None = None


class Bench(Protocol):
    """What a module of `benches/` holds."""

    __name__: str

    def drawn(self, draw: random.Random, world_size: int) -> Mapping[str, int]:
        """The settings of a case."""

    def attempt(self, rank: JudgedRank, program: ModuleType, case: Case) -> Tensors:
        """Call the reader's code on a rank, metered, and return what is compared."""

    def one(self, case: Case, dtype: torch.dtype) -> Tensors:
        """What one process computes."""

    def requirements(self, case: Case) -> Sequence[Requirement]:
        """The laws, in the order in which a reader meets them.

        A bench may also name as `ALLOWED` what of `RankResult.beside` its programs may do.
        """


@dataclass(frozen=True)
class Row:
    """How one requirement came out.

    Attributes:
        requirement: its id.
        state: whether it holds in all cases.
        seed: of the case that decided it.
        allowed: its value in that case.
        says: the first difference, in one line.
        what: the tensor or the quantity that differs.
        observed: what was measured in that case, where `allowed` is a number.
    """

    requirement: str
    state: State
    seed: int
    allowed: float | None = None
    says: str = ""
    observed: float | None = None
    what: str = ""


@dataclass(frozen=True)
class Grade:
    """What came of a file.

    Attributes:
        rows: by requirement, in order.
        seen: what each rank did in the case that decided.
        case: that case.
    """

    rows: Sequence[Row]
    seen: Sequence[RankResult]
    case: Case

    @property
    def first_failed(self) -> Row | None:
        """The first requirement that does not hold; the one that is explained."""
        return next((row for row in self.rows if row.state != "holds"), None)

    @property
    def is_solved(self) -> bool:
        """Whether every requirement holds."""
        return self.first_failed is None


def graded(bench: Bench, file: Path, world_size: int, seeds: Sequence[int]) -> Grade:
    """Grade a file.

    Args:
        bench: of the lab.
        file: with the reader's code.
        world_size: the number of ranks.
        seeds: of the cases; the first that fails decides.
    """
    for seed in seeds:
        case = case_of(bench, world_size, seed)
        seen = run(attempt, world_size, bench.__name__, file, case, files=[file])
        grade = Grade(rows(bench, case, seen), seen, case)
        if not grade.is_solved:
            break
    return grade


def case_of(bench: Bench, world_size: int, seed: int) -> Case:
    """The case of a seed."""
    return Case(seed, world_size, bench.drawn(random.Random(seed), world_size))


def same_as_one_process(
    one: Callable[[Case, torch.dtype], Tensors],
    case: Case,
    share: comparison.Share = comparison.whole,
) -> Requirement:
    """The requirement with which labs begin; `share` is what a rank holds of a whole tensor."""
    in_case = functools.partial(one, case)

    def named(found: Comparison) -> Comparison:
        if found.state != "differs":
            return found
        return dataclasses.replace(found, says=f"{found.what}: {found.says}")

    return Requirement(
        "same", lambda seen: map(named, comparison.as_one_process(seen, in_case, share))
    )


def sends(payload: Mapping[str, float], name: str = "sends") -> Requirement:
    """At most this payload, in bytes by operation, and no other operation."""
    return Requirement(
        name, lambda seen: comparison.sent(seen, payload, at_most=True), max(payload.values())
    )


def holds_at_most(num_bytes: float) -> Requirement:
    """A peak of tensor bytes, with what gloo may free late."""
    return Requirement("peak", lambda seen: [comparison.peak(seen, num_bytes)], num_bytes)


def keeps_at_most(num_bytes: float, name: str) -> Requirement:
    """Tensor bytes that were made and are still held at the end, wherever they are held."""
    return Requirement(name, lambda seen: comparison.kept(seen, num_bytes), num_bytes)


def both(first: Requirement, second: Requirement) -> Requirement:
    """One requirement of two; the first has the name and the number."""
    return dataclasses.replace(first, check=lambda seen: [*first.check(seen), *second.check(seen)])


def calls(operations: Sequence[str]) -> Requirement:
    """The operations that a rank calls, in order."""
    return Requirement("order", lambda seen: [comparison.order(seen, operations)])


def rows(bench: Bench, case: Case, seen: Sequence[RankResult]) -> list[Row]:
    """How each requirement came out in a case."""
    allowed: Sequence[str] = getattr(bench, "ALLOWED", ())
    everywhere = Requirement(LENT, lambda seen: comparison.undisturbed(seen, allowed))
    asked = [*bench.requirements(case), everywhere]
    if failed := next((one.failure for one in seen if one.failure), None):
        # That is what there is to explain, whatever other ranks returned.
        return [Row(one.id, "not tried", case.seed, one.allowed, failed.message) for one in asked]
    return [_row(one, list(one.check(seen)), case) for one in asked]


def _row(one: Requirement, found: Sequence[Comparison], case: Case) -> Row:
    """Of the comparisons of a requirement the first that differs, else the first not made."""
    order: tuple[State, ...] = ("fails", "not tried", "holds")
    states: dict[str, State] = {"differs": "fails", "not compared": "not tried", "agrees": "holds"}
    by_state = {state: [c for c in found if states[c.state] == state] for state in order}
    state: State = next((state for state in order if by_state[state]), "not tried")
    decides = max(by_state[state], key=lambda c: c.observed or 0, default=None)
    if decides is None:
        return Row(one.id, state, case.seed, one.allowed)
    observed = decides.observed if one.allowed is not None else None
    return Row(one.id, state, case.seed, one.allowed, decides.says, observed, decides.what)


def attempt(rank: JudgedRank, bench: str, file: Path, case: Case) -> Mapping[str, Tensor]:
    """The program that ranks run: the reader's code on its bench, a module by its name.

    In each collective another rank is late, so that what does not wait reads old numbers.
    """
    found: Any = importlib.import_module(bench)
    rank.come_late(LATE_SECONDS)
    attempted: Tensors = found.attempt(rank, loaded(file), case)
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


def calls_exactly(operation: str, payloads: Sequence[int]) -> Requirement:
    """The calls of an operation on each rank have these payloads, in bytes, in this order."""

    def wrong(one: RankResult) -> str:
        called = [call.num_bytes for call in one.calls if call.operation == operation]
        if called == list(payloads):
            return ""
        pairs = enumerate(itertools.zip_longest(called, payloads, fillvalue=0))
        at, (passed, expected) = next(pair for pair in pairs if pair[1][0] != pair[1][1])
        return (
            f"called {operation} {len(called)} times, expected {len(payloads)}; call {at} passed "
            f"{as_bytes(passed)}, expected {as_bytes(expected)}"
        )

    return Requirement("calls", lambda seen: comparison.each(operation, seen, wrong))


def counts(requirement: str, name: str, number: int, *, at_most: bool = False) -> Requirement:
    """This number, which the bench counts and returns as a tensor under a name."""

    def wrong(one: RankResult) -> str:
        found = int(one.returned[name])
        if found == number or (at_most and found < number):
            return ""
        return f"made {found:,} {name}, {'allowed' if at_most else 'expected'} {number:,}"

    return Requirement(requirement, lambda seen: comparison.each(name, seen, wrong))


def sends_in_all(num_bytes: float) -> Requirement:
    """At most these bytes from a rank, whatever the operations, each of them over a ring."""

    def compared(seen: Sequence[RankResult]) -> Iterable[Comparison]:
        def sent(one: RankResult) -> float:
            return sent_over_a_ring(one.calls, len(seen))

        def wrong(one: RankResult) -> str:
            if sent(one) <= num_bytes:
                return ""
            payloads: dict[str, list[int]] = {}
            for call in one.calls:
                payloads.setdefault(call.operation, []).append(call.num_bytes)
            parts = (
                f"{len(those)} {name} with {as_bytes(sum(those))} in all"
                for name, those in payloads.items()
            )
            return (
                f"sent {as_bytes(sent(one))}, allowed {as_bytes(num_bytes)}; it called "
                f"{', '.join(parts)}"
            )

        return comparison.each("sent", seen, wrong, sent)

    return Requirement("sends", compared, num_bytes)


def backward(loss: Tensor) -> None:
    """Backward of a loss that a bench computes from what a reader's code returned.

    Raises:
        ValueError: autograd knows no way from the loss to a parameter.
    """
    if not loss.requires_grad:
        raise ValueError(
            "what your function returned requires no gradient, so backward cannot start: autograd "
            "has to see a tensor that requires one among the arguments of what you call"
        )
    loss.backward()
