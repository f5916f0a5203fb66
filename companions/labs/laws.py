"""The laws of benches: requirements made from the comparisons of `runners/judging`."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from proofbook.companions.labs.grading import LabCase, Requirement
from proofbook.runners.judging import comparison
from proofbook.runners.judging.comparison import Comparison, Tensors, as_bytes, sent_over_a_ring
from proofbook.runners.judging.ranks import RankResult


def same_as_one_process(
    one_process: Callable[[LabCase, torch.dtype], Tensors],
    case: LabCase,
    share: comparison.Share = comparison.whole,
) -> Requirement:
    """The requirement that each rank returns its `share` of one process's tensors, but rounding."""
    in_case = functools.partial(one_process, case)

    def check(ranks: Sequence[RankResult]) -> Iterable[Comparison]:
        for compared in comparison.as_one_process(ranks, in_case, share):
            says = f"{compared.what}: {compared.says}"
            is_other = compared.state == "differs"
            yield dataclasses.replace(compared, says=says) if is_other else compared

    return Requirement("same", check)


def same_to_the_bit(expected: str) -> Requirement:
    """The requirement that a rank returns the tensors that it returns as `expected` and a name."""

    def wrong(name: str, rank: RankResult) -> str:
        held, wanted = rank.returned[name], rank.returned[expected + name]
        if torch.equal(held, wanted):
            return ""
        if held.shape != wanted.shape:
            return f"has other {name}: {tuple(held.shape)}, expected {tuple(wanted.shape)}"
        at = int((held != wanted).flatten().nonzero()[0])
        numbers = [f"{float(side.flatten()[at]):.9g}" for side in (held, wanted)]
        return f"has other {name}: element {at} is {numbers[0]}, {expected}{numbers[1]}"

    def compared(ranks: Sequence[RankResult]) -> Iterable[Comparison]:
        for name in ranks[0].returned or ():
            if expected + name in ranks[0].returned:
                yield from comparison.on_each_rank(name, ranks, functools.partial(wrong, name))

    return Requirement("same", compared)


def sends(payload: Mapping[str, float]) -> Requirement:
    """The requirement that each rank passes at most these bytes to an operation, and no others."""

    def check(ranks: Sequence[RankResult]) -> Iterable[Comparison]:
        return comparison.sent(ranks, payload, at_most=True)

    return Requirement("sends", check, max(payload.values()))


def holds_at_most(num_bytes: float) -> Requirement:
    """A peak of tensor bytes, with what gloo may free late."""
    return Requirement("peak", lambda ranks: [comparison.peak(ranks, num_bytes)], num_bytes)


def keeps_at_most(num_bytes: float, name: str) -> Requirement:
    """Tensor bytes that were made and are still held at the end, wherever they are held."""
    return Requirement(name, lambda ranks: comparison.kept(ranks, num_bytes), num_bytes)


def both(first: Requirement, second: Requirement) -> Requirement:
    """One requirement of two; the first has the name and the number."""
    return dataclasses.replace(
        first, check=lambda ranks: [*first.check(ranks), *second.check(ranks)]
    )


def calls(operations: Sequence[str]) -> Requirement:
    """The operations that a rank may call, in order; a better program needs fewer."""
    return Requirement("order", lambda ranks: [comparison.order(ranks, operations, at_most=True)])


def calls_exactly(operation: str, payloads: Sequence[int]) -> Requirement:
    """The requirement that each rank's calls of an operation have these bytes, in order."""

    def wrong(rank: RankResult) -> str:
        called = [call.num_bytes for call in rank.calls if call.operation == operation]
        if called == list(payloads):
            return ""
        pairs = enumerate(itertools.zip_longest(called, payloads, fillvalue=0))
        at, (passed, expected) = next(pair for pair in pairs if pair[1][0] != pair[1][1])
        return (
            f"called {operation} {len(called)} times, expected {len(payloads)}; call {at} passed "
            f"{as_bytes(passed)}, expected {as_bytes(expected)}"
        )

    return Requirement("calls", lambda ranks: comparison.on_each_rank(operation, ranks, wrong))


def counts(
    requirement: str,
    name: str,
    number: int,
    *,
    or_more: bool = False,
    or_less: bool = False,
    verb: str = "made",
) -> Requirement:
    """The requirement that each rank returns this number under `name`, counted by the bench."""

    def wrong(rank: RankResult) -> str:
        counted = int(rank.returned[name])
        if counted == number or (or_more if counted > number else or_less):
            return ""
        limit = " or more" * or_more + " or less" * or_less
        return f"{verb} {counted:,} {name}, expected {number:,}{limit}"

    return Requirement(requirement, lambda ranks: comparison.on_each_rank(name, ranks, wrong))


def counts_at_most(
    requirement: str, name: str, num_bytes: float, verb: str = "sent"
) -> Requirement:
    """The requirement that each rank returns at most these bytes under `name`, by the bench."""

    def sent(rank: RankResult) -> float:
        return float(rank.returned[name])

    def wrong(rank: RankResult) -> str:
        if sent(rank) <= num_bytes:
            return ""
        return f"{verb} {sent(rank):,.0f} {name}, allowed {as_bytes(num_bytes)}"

    return Requirement(
        requirement, lambda ranks: comparison.on_each_rank(name, ranks, wrong, sent), num_bytes
    )


def sends_in_all(num_bytes: float) -> Requirement:
    """The requirement that a rank sends at most these bytes, as if each call ran over a ring."""

    def compared(ranks: Sequence[RankResult]) -> Iterable[Comparison]:
        def sent(rank: RankResult) -> float:
            return sent_over_a_ring(rank.calls, len(ranks))

        def wrong(rank: RankResult) -> str:
            if sent(rank) <= num_bytes:
                return ""
            payloads: dict[str, list[int]] = {}
            for call in rank.calls:
                payloads.setdefault(call.operation, []).append(call.num_bytes)
            parts = (
                f"{len(sizes)} {name} with {as_bytes(sum(sizes))} in all"
                for name, sizes in payloads.items()
            )
            return (
                f"sent {as_bytes(sent(rank))}, allowed {as_bytes(num_bytes)}; it called "
                f"{', '.join(parts)}"
            )

        return comparison.on_each_rank("sent", ranks, wrong, sent)

    return Requirement("sends", compared, num_bytes)
