"""Set what ranks did beside one process and beside laws.

In: what `ranks.run` saw, and what is expected. Out: comparisons, each of which agrees, differs, or
was not made, with the reason. Nothing that could not be compared counts as agreeing.

A tolerance follows from the computation itself: of what one process computes in the program's own
precision, the error against float64, `ROUNDINGS` times, since ranks add in another order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from runners.judging.ranks import Call, Seen

ROUNDINGS = 16
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


def as_one_process(seen: Sequence[Seen], one: One, share: Share = whole) -> Iterator[Comparison]:
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


def _tensor(name: str, seen: Seen, should: Tensor, tolerance: float) -> Comparison:
    if seen.failure is not None:
        return Comparison(name, "not compared", seen.rank, _failed(seen))
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


def sent(
    seen: Sequence[Seen], bytes_by_operation: Mapping[str, float], *, at_most: bool = False
) -> Iterator[Comparison]:
    """The payload of each operation on each rank, beside what is expected.

    Args:
        seen: the ranks.
        bytes_by_operation: payload in bytes, as `Call.num_bytes` sums it up; operations that are
            not named may not be called.
        at_most: less is allowed, too.
    """
    called = {call.operation for one in seen for call in one.calls}
    for operation in dict.fromkeys([*bytes_by_operation, *sorted(called)]):
        allowed = bytes_by_operation.get(operation, 0)
        yield _first(operation, (_sent(operation, one, allowed, at_most) for one in seen))


def _sent(operation: str, seen: Seen, allowed: float, at_most: bool) -> Comparison:
    if seen.failure is not None:
        return Comparison(operation, "not compared", seen.rank, _failed(seen))
    num_bytes = sum(call.num_bytes for call in seen.calls if call.operation == operation)
    if num_bytes == allowed or (at_most and num_bytes < allowed):
        return Comparison(operation, "agrees", observed=num_bytes)
    limit = f"at most {_bytes(allowed)}" if at_most else _bytes(allowed)
    says = f"rank {seen.rank} passed {_bytes(num_bytes)} to {operation}, expected {limit}"
    return Comparison(operation, "differs", seen.rank, says, num_bytes)


def sent_over_a_ring(calls: Iterable[Call], world_size: int) -> float:
    """Bytes that a rank sends for these calls where each runs over a ring of all ranks."""
    return sum(call.num_bytes * RING[call.operation](world_size) for call in calls)


def peak(seen: Sequence[Seen], at_most: float, slack: float = 0) -> Comparison:
    """The largest peak of tensor bytes beside what is allowed.

    Args:
        seen: the ranks.
        at_most: bytes above what a rank held when metering began.
        slack: bytes of a buffer that gloo's threads may free late.
    """
    return _first("peak", (_peak(one, at_most, slack) for one in seen))


def _peak(seen: Seen, at_most: float, slack: float) -> Comparison:
    held = seen.memory.peak_bytes
    if seen.failure is not None or held is None:
        return Comparison("peak", "not compared", seen.rank, _failed(seen))
    if held <= at_most + slack:
        return Comparison("peak", "agrees", observed=held)
    says = f"rank {seen.rank} held {_bytes(held)}, allowed {_bytes(at_most)}"
    return Comparison("peak", "differs", seen.rank, says, held)


def order(seen: Sequence[Seen], operations: Sequence[str]) -> Comparison:
    """The operations that each rank called, in their order, beside those expected."""
    return _first("order", (_order(one, list(operations)) for one in seen))


def _order(seen: Seen, expected: list[str]) -> Comparison:
    if seen.failure is not None:
        return Comparison("order", "not compared", seen.rank, _failed(seen))
    called = [call.operation for call in seen.calls]
    if called == expected:
        return Comparison("order", "agrees")
    says = f"rank {seen.rank} called {_listed(called)}; expected {_listed(expected)}"
    return Comparison("order", "differs", seen.rank, says)


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


def _failed(seen: Seen) -> str:
    failure = seen.failure
    return (
        f"rank {seen.rank}: {failure.message}" if failure else f"rank {seen.rank} was not metered"
    )


def _bytes(number: float) -> str:
    return f"{number:,.0f} bytes"
