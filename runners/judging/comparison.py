"""Set what ranks did beside one process and beside laws.

In: what `ranks.run` saw, and what is expected. Out: comparisons, each of which agrees, differs, or
was not made, with the reason. Nothing that could not be compared counts as agreeing.

A tolerance follows from the computation itself: of what one process computes in the program's own
precision, the error against float64, `ROUNDINGS` times, since ranks add in another order.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from runners.judging.ranks import MeteredCall, RankResult

ROUNDINGS = 16
MOST_CHANGES = 3  # that a message lists
# What a rank sends over a ring of n ranks, for each byte of payload, by the collective's name.
RING: Mapping[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "broadcast": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
    "gather": lambda n: (n - 1) / n,
    "reduce": lambda n: (n - 1) / n,
    "send": lambda n: 1.0,
    "recv": lambda n: 0.0,
}
State = Literal["agrees", "differs", "not compared"]
Tensors = Mapping[str, Tensor]
One = Callable[[torch.dtype], Tensors]
Share = Callable[[str, Tensor, int, int], Tensor]


@dataclass(frozen=True)
class Comparison:
    """What was compared, and what came of it.

    Attributes:
        what: the tensor, the operation, or the quantity.
        state: whether it agrees; *not compared* where that could not be told.
        rank: the rank that differs, or which could not be compared; None where all are alike.
        says: one line: the difference, or why nothing was compared.
        observed: bytes, where bytes were compared; of all ranks the most, where they agree.
    """

    what: str
    state: State
    rank: int | None = None
    says: str = ""
    observed: float | None = None


def whole(name: str, tensor: Tensor, rank: int, world_size: int) -> Tensor:
    """What a rank holds of a tensor where each holds all of it."""
    return tensor


def first_rows(name: str, tensor: Tensor, rank: int, world_size: int) -> Tensor:
    """What a rank holds of a tensor that is split into equal parts along its first axis."""
    return tensor.chunk(world_size)[rank]


def as_one_process(
    seen: Sequence[RankResult], one: One, share: Share = whole
) -> Iterator[Comparison]:
    """Each tensor that one process computes, beside what each rank returned under its name.

    Args:
        seen: the ranks.
        one: computes the whole tensors in one process, in the precision that it is given.
        share: what a rank should hold of a whole tensor.
    """
    exact, rounded = one(torch.float64), one(torch.float32)
    for name, should in exact.items():
        error = (rounded[name].double() - should).abs().max().item() if should.numel() else 0.0
        scale = should.abs().max().item() if should.numel() else 0.0
        tolerance = ROUNDINGS * max(error, torch.finfo(torch.float32).eps * scale)
        found = (
            _tensor(name, one_seen, share(name, should, one_seen.rank, len(seen)), tolerance)
            for one_seen in seen
        )
        yield _first(name, found)


def _tensor(name: str, seen: RankResult, should: Tensor, tolerance: float) -> Comparison:
    if seen.failure is not None:
        return Comparison(
            name, "not compared", seen.rank, f"rank {seen.rank}: {seen.failure.message}"
        )
    returned = seen.returned
    held = returned.get(name) if isinstance(returned, Mapping) else None
    if not isinstance(held, Tensor):
        return Comparison(name, "not compared", seen.rank, f"rank {seen.rank} returned no {name}")
    if held.shape != should.shape:
        shapes = f"{tuple(held.shape)}, expected {tuple(should.shape)}"
        return Comparison(name, "differs", seen.rank, f"its shape on rank {seen.rank} is {shapes}")
    if not should.numel():
        return Comparison(name, "agrees")
    difference = (held.double() - should).abs()
    at = int(difference.nan_to_num(nan=torch.inf).argmax())
    if bool(torch.isfinite(held).all()) and float(difference.flatten()[at]) <= tolerance:
        return Comparison(name, "agrees")
    was, is_ = should.flatten()[at].item(), held.flatten()[at].item()
    says = f"on rank {seen.rank}, element {at} is {is_:.6g}, in one process {was:.6g}"
    says += f" (the difference is {abs(is_ - was):.2g}, allowed {tolerance:.2g})"
    factor = common_factor(held.double(), should)
    if factor is not None:
        says += f": all elements are {factor:.4g} times as large"
    return Comparison(name, "differs", seen.rank, says)


def common_factor(held: Tensor, should: Tensor) -> float | None:
    """The factor between two tensors, where it is one for all elements and not 1."""
    is_large = should.abs() > 1e-3 * should.abs().max()
    ratios = held[is_large] / should[is_large]
    if not ratios.numel() or not bool(torch.isfinite(ratios).all()):
        return None
    factor = ratios.median().item()
    is_common = bool(((ratios - factor).abs() <= 1e-3 * max(abs(factor), 1e-3)).all())
    return factor if is_common and abs(factor - 1) > 1e-3 else None


def each(
    what: str,
    seen: Sequence[RankResult],
    wrong: Callable[[RankResult], str],
    observed: Callable[[RankResult], float | None] = lambda _: None,
) -> Iterator[Comparison]:
    """A comparison on each rank, which was not made where the rank failed.

    Args:
        what: is compared.
        seen: the ranks.
        wrong: says what differs on a rank; nothing where it agrees.
        observed: what was measured on a rank, where that is a number.
    """
    for one in seen:
        if one.failure is not None:
            says = f"rank {one.rank}: {one.failure.message}"
            yield Comparison(what, "not compared", one.rank, says)
        elif says := wrong(one):
            yield Comparison(what, "differs", one.rank, f"rank {one.rank} {says}", observed(one))
        else:
            yield Comparison(what, "agrees", observed=observed(one))


def sent(
    seen: Sequence[RankResult], bytes_by_operation: Mapping[str, float], *, at_most: bool = False
) -> Iterator[Comparison]:
    """The payload of each operation on each rank, beside what is expected.

    Args:
        seen: the ranks.
        bytes_by_operation: payload in bytes, as `MeteredCall.num_bytes` sums it up; operations that
            are not named may not be called.
        at_most: less is allowed, too.
    """
    called = {call.operation for one in seen for call in one.calls}
    for operation in dict.fromkeys([*bytes_by_operation, *sorted(called)]):
        allowed = bytes_by_operation.get(operation, 0)
        yield _first(operation, _sent(operation, seen, allowed, at_most))


def _sent(
    operation: str, seen: Sequence[RankResult], allowed: float, at_most: bool
) -> Iterator[Comparison]:
    def passed(one: RankResult) -> float:
        return sum(call.num_bytes for call in one.calls if call.operation == operation)

    def wrong(one: RankResult) -> str:
        if passed(one) == allowed or (at_most and passed(one) < allowed):
            return ""
        limit = f"at most {as_bytes(allowed)}" if at_most else as_bytes(allowed)
        return f"passed {as_bytes(passed(one))} to {operation}, expected {limit}"

    return each(operation, seen, wrong, passed)


def sent_over_a_ring(calls: Iterable[MeteredCall], world_size: int) -> float:
    """Bytes that a rank sends for these calls where each runs over a ring of all ranks."""
    return sum(call.num_bytes * RING[call.operation](world_size) for call in calls)


def peak(seen: Sequence[RankResult], at_most: float, slack: float = 0) -> Comparison:
    """The largest peak of tensor bytes beside what is allowed.

    Args:
        seen: the ranks.
        at_most: bytes above what a rank held when metering began.
        slack: bytes of a buffer that gloo's threads may free late.
    """

    def wrong(one: RankResult) -> str:
        held = one.memory.peak_bytes
        if held is not None and held <= at_most + slack:
            return ""
        more = f" and {as_bytes(slack)} that may be freed late" if slack else ""
        return f"held {as_bytes(held or 0)}, allowed {as_bytes(at_most)}{more}"

    return _first("peak", each("peak", seen, wrong, lambda one: one.memory.peak_bytes))


def kept(seen: Sequence[RankResult], at_most: float) -> Iterator[Comparison]:
    """The bytes of tensors that a rank made and still holds at the end, beside what is allowed."""

    def wrong(one: RankResult) -> str:
        if one.kept_bytes <= at_most:
            return ""
        return f"still held {as_bytes(one.kept_bytes)} at the end, allowed {as_bytes(at_most)}"

    return each("kept", seen, wrong, lambda one: one.kept_bytes)


def undisturbed(seen: Sequence[RankResult], allowed: Sequence[str] = ()) -> Iterator[Comparison]:
    """Whether each rank left what it was lent as it was, and called no barrier and made no group.

    Args:
        seen: the ranks.
        allowed: of `RankResult.beside`.
    """

    def wrong(one: RankResult) -> str:
        called = Counter(name for name in one.beside if name not in allowed)
        words = [f"{name} ({times} times)" for name, times in called.items()]
        found = [*one.changed[:MOST_CHANGES], *words]
        return f"ended otherwise than it began: {'; '.join(found)}" if found else ""

    return each("lent", seen, wrong)


def messages(seen: Sequence[RankResult], addressee: Callable[[int], int]) -> Iterator[Comparison]:
    """Whether each rank sends to no other rank than the one that `addressee` names for it."""

    def wrong(one: RankResult) -> str:
        to = {call.destination for call in one.calls if call.operation == "send"}
        other = sorted(rank for rank in to if rank is not None and rank != addressee(one.rank))
        if not other:
            return ""
        return f"sent to rank {other[0]}, expected messages to rank {addressee(one.rank)} only"

    return each("messages", seen, wrong)


def order(seen: Sequence[RankResult], operations: Sequence[str]) -> Comparison:
    """The operations that each rank called, in their order, beside those expected."""

    def wrong(one: RankResult) -> str:
        called = [call.operation for call in one.calls]
        if called == list(operations):
            return ""
        return f"called {_listed(called)}; expected {_listed(operations)}"

    return _first("order", each("order", seen, wrong))


def _listed(operations: Sequence[str]) -> str:
    """Operations in order; one that is repeated stands once, with how often."""
    found = ((name, sum(1 for _ in same)) for name, same in itertools.groupby(operations))
    words = (name if times == 1 else f"{name} ({times} times)" for name, times in found)
    return ", ".join(words) or "nothing"


def _first(what: str, found: Iterable[Comparison]) -> Comparison:
    """Of a comparison on each rank the first that differs, else the first that was not made."""
    all_found = list(found)
    for state in ("differs", "not compared"):
        for one in all_found:
            if one.state == state:
                return one
    if not all_found:
        return Comparison(what, "not compared", says="no rank ran")
    return max(all_found, key=lambda one: one.observed or 0)


def as_bytes(number: float) -> str:
    """Bytes as a message prints them."""
    return f"{number:,.0f} bytes"
