"""Compare ranks with one process, and their bytes and calls with laws.

In: the result of each rank (`ranks.run`), and what is expected. Out: comparisons, each of which
agrees, differs, or was not made, with the reason. One that was not made never counts as agreeing.
How far tensors may differ is in `rounding.py`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from proofbook.runners.judging.ranks import MeteredCall, RankResult
from proofbook.runners.judging.rounding import ELEMENT, allowance, distance, ratio

MOST_CHANGES = 3  # that a message lists
# The bytes that a rank of n sends over a ring for each byte of payload, by collective.
RING: Mapping[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    **dict.fromkeys(
        ("all_gather", "reduce_scatter", "broadcast", "all_to_all", "scatter", "gather", "reduce"),
        lambda n: (n - 1) / n,
    ),
    "send": lambda n: 1.0,
    "recv": lambda n: 0.0,
}
_MULTIPLE = 1e-3  # relative: by which a tensor may differ from a multiple of another
State = Literal["agrees", "differs", "not compared"]
Ranks = Sequence[RankResult]
Tensors = Mapping[str, Tensor]
InOneProcess = Callable[[torch.dtype], Tensors]
Share = Callable[[str, Tensor, int, int], Tensor]


@dataclass(frozen=True)
class Comparison:
    """One comparison and its result."""

    what: str  # the tensor, the operation, or the quantity that is compared
    state: State  # *not compared* where agreement cannot be told
    rank: int | None = None  # that differs or could not be compared; None where all ranks agree
    says: str = ""  # one line: the difference, or why nothing was compared
    observed: float | None = None  # bytes, where compared; the most of all ranks that agree


def whole(name: str, tensor: Tensor, rank: int, world_size: int) -> Tensor:
    """The share of a rank in a replicated tensor: all of it."""
    return tensor


def first_rows(name: str, tensor: Tensor, rank: int, world_size: int) -> Tensor:
    """The share of a rank in a tensor that is divided equally along its first axis."""
    return tensor.chunk(world_size)[rank]


def as_one_process(
    ranks: Ranks, in_one_process: InOneProcess, share: Share = whole
) -> Iterator[Comparison]:
    """Yield a `Comparison` for each tensor: ranks' shares against float64's, within rounding.

    `in_one_process` computes whole tensors in a precision; rounding is by its error in float32.
    """
    exact, rounded = in_one_process(torch.float64), in_one_process(torch.float32)
    for name, expected in exact.items():
        error = _largest(rounded[name].double() - expected)
        eps = torch.finfo(torch.float32).eps
        tolerance = allowance(ELEMENT, error, eps, _largest(expected))
        parts = [share(name, expected, result.rank, len(ranks)) for result in ranks]
        by_rank = (_tensor(name, *pair, tolerance) for pair in zip(ranks, parts, strict=True))
        yield _decisive(name, by_rank)


def _largest(tensor: Tensor) -> float:
    return tensor.abs().max().item() if tensor.numel() else 0.0


def _tensor(name: str, result: RankResult, expected: Tensor, tolerance: float) -> Comparison:
    rank, returned = result.rank, result.returned
    if result.failure is not None:
        return _not_made(name, result)
    held = returned.get(name) if isinstance(returned, Mapping) else None
    if not isinstance(held, Tensor):
        return Comparison(name, "not compared", rank, f"rank {rank} returned no {name}")
    if held.shape != expected.shape:
        shapes = f"{tuple(held.shape)}, expected {tuple(expected.shape)}"
        return Comparison(name, "differs", rank, f"its shape on rank {rank} is {shapes}")
    if not expected.numel():
        return Comparison(name, "agrees")
    difference = (held.double() - expected).abs()
    at = int(difference.nan_to_num(nan=torch.inf).argmax())
    if bool(torch.isfinite(held).all()) and float(difference.flatten()[at]) <= tolerance:
        return Comparison(name, "agrees")
    wanted, actual = expected.flatten()[at].item(), held.flatten()[at].item()
    says = f"on rank {rank}, element {at} is {actual:.6g}, in one process {wanted:.6g}"
    says += f" (the difference is {abs(actual - wanted):.2g}, allowed {tolerance:.2g})"
    factor = common_factor(held, expected)
    if factor is not None:
        says += f": all elements are {factor:.4g} times as large"
    return Comparison(name, "differs", rank, says)


def _not_made(what: str, result: RankResult) -> Comparison:
    message = result.failure.message if result.failure else ""
    return Comparison(what, "not compared", result.rank, f"rank {result.rank}: {message}")


def common_factor(held: Tensor, expected: Tensor) -> float | None:
    """The factor by which all elements of a tensor are larger; None where there is none but 1."""
    factor = ratio(held, expected)
    allowed = _MULTIPLE * abs(factor) * expected.double().norm().item()
    is_multiple = distance(held, factor * expected.double()) <= allowed
    return factor if is_multiple and abs(factor - 1) > _MULTIPLE else None


def on_each_rank(
    what: str,
    ranks: Ranks,
    wrong: Callable[[RankResult], str],
    observed: Callable[[RankResult], float | None] = lambda _: None,
) -> Iterator[Comparison]:
    """Yield a comparison a rank: it differs where `wrong` has words; not made if the rank failed.

    `wrong` words the difference on a rank, or is empty; `observed` gives the measured number.
    """
    for result in ranks:
        if result.failure is not None:
            yield _not_made(what, result)
        elif says := wrong(result):
            says = f"rank {result.rank} {says}"
            yield Comparison(what, "differs", result.rank, says, observed(result))
        else:
            yield Comparison(what, "agrees", observed=observed(result))


def sent(
    ranks: Ranks, bytes_by_operation: Mapping[str, float], *, at_most: bool = False
) -> Iterator[Comparison]:
    """Yield a `Comparison` an operation: a rank's bytes in all against those given, else 0.

    With `at_most`, less is allowed, too.
    """
    called = {call.operation for result in ranks for call in result.calls}
    for operation in dict.fromkeys([*bytes_by_operation, *sorted(called)]):
        allowed = bytes_by_operation.get(operation, 0)
        yield _decisive(operation, _sent(operation, ranks, allowed, at_most))


def _sent(operation: str, ranks: Ranks, allowed: float, at_most: bool) -> Iterator[Comparison]:
    def passed(result: RankResult) -> float:
        return sum(call.num_bytes for call in result.calls if call.operation == operation)

    def wrong(result: RankResult) -> str:
        num_bytes = passed(result)
        if num_bytes == allowed or (at_most and num_bytes < allowed):
            return ""
        limit = f"at most {as_bytes(allowed)}" if at_most else as_bytes(allowed)
        return f"passed {as_bytes(num_bytes)} to {operation}, expected {limit}"

    return on_each_rank(operation, ranks, wrong, passed)


def sent_over_a_ring(calls: Iterable[MeteredCall], world_size: int) -> float:
    """Bytes that a rank sends for these calls where each runs over a ring of all ranks."""
    return sum(call.num_bytes * RING[call.operation](world_size) for call in calls)


def peak(ranks: Ranks, at_most: float, slack: float = 0) -> Comparison:
    """A `Comparison`, for all ranks, of peaks of tensor bytes, above the start's, against a limit.

    `slack` allows the bytes of a buffer that gloo's threads may free late.
    """

    def wrong(result: RankResult) -> str:
        held = result.memory.peak_bytes
        if held is not None and held <= at_most + slack:
            return ""
        more = f" and {as_bytes(slack)} that may be freed late" if slack else ""
        return f"held {as_bytes(held or 0)}, allowed {as_bytes(at_most)}{more}"

    return _decisive("peak", on_each_rank("peak", ranks, wrong, lambda r: r.memory.peak_bytes))


def kept(ranks: Ranks, at_most: float) -> Iterator[Comparison]:
    """Yield a `Comparison` a rank: bytes of tensors made and held at the end, against a limit."""

    def wrong(result: RankResult) -> str:
        if result.kept_bytes <= at_most:
            return ""
        return f"still held {as_bytes(result.kept_bytes)} at the end, allowed {as_bytes(at_most)}"

    return on_each_rank("kept", ranks, wrong, lambda result: result.kept_bytes)


def undisturbed(ranks: Ranks, allowed: Sequence[str] = ()) -> Iterator[Comparison]:
    """Yield a `Comparison` a rank: its arguments are as they were, without barrier or new group.

    `allowed` names entries of `beside` that are no difference.
    """

    def wrong(result: RankResult) -> str:
        called = Counter(name for name in result.beside if name not in allowed)
        words = [f"{name} ({times} times)" for name, times in called.items()]
        changes = [*result.changed[:MOST_CHANGES], *words]
        return f"ended otherwise than it began: {'; '.join(changes)}" if changes else ""

    return on_each_rank("lent", ranks, wrong)


def messages(ranks: Ranks, addressee: Callable[[int], int]) -> Iterator[Comparison]:
    """Yield a `Comparison` a rank: it sends only to the rank that `addressee` gives for it."""

    def wrong(result: RankResult) -> str:
        to = {call.destination for call in result.calls if call.operation == "send"}
        expected = addressee(result.rank)
        other = sorted(rank for rank in to if rank is not None and rank != expected)
        if not other:
            return ""
        return f"sent to rank {other[0]}, expected messages to rank {expected} only"

    return on_each_rank("messages", ranks, wrong)


def order(ranks: Ranks, operations: Sequence[str], *, at_most: bool = False) -> Comparison:
    """A `Comparison`, for all ranks, of operations called, in order, against those expected.

    With `at_most`, some of them may be left out.
    """

    def wrong(result: RankResult) -> str:
        called, left = [call.operation for call in result.calls], iter(operations)
        is_in_order = all(name in left for name in called)
        if called == list(operations) or (at_most and is_in_order):
            return ""
        return f"called {_listed(called)}; expected {'at most ' * at_most}{_listed(operations)}"

    return _decisive("order", on_each_rank("order", ranks, wrong))


def _listed(operations: Sequence[str]) -> str:
    """Operations in order; repeated ones stand once, with their number."""
    counts = ((name, sum(1 for _ in same)) for name, same in itertools.groupby(operations))
    words = (name if times == 1 else f"{name} ({times} times)" for name, times in counts)
    return ", ".join(words) or "nothing"


def _decisive(what: str, by_rank: Iterable[Comparison]) -> Comparison:
    """The first comparison that differs, else the first that was not made, else the largest."""
    comparisons = list(by_rank)
    for state in ("differs", "not compared"):
        if first := next((c for c in comparisons if c.state == state), None):
            return first
    nothing = Comparison(what, "not compared", says="no rank ran")
    return max(comparisons, key=lambda c: c.observed or 0, default=nothing)


def as_bytes(number: float) -> str:
    """Bytes in the words of a message."""
    return f"{number:,.0f} bytes"
