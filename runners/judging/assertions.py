"""The comparisons of the judge as assertions, for tests of any project.

    from proofbook.judging import assert_peak, assert_same_as_one_process, assert_sends

Each runs `program` with its `arguments` on `world_size` ranks, on gloo and CPU. It raises an
`AssertionError` that names every comparison which does not agree: what differs, on which rank, and
where a rank failed. What could not be compared fails as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from proofbook.runners.judging import comparison
from proofbook.runners.judging.comparison import Comparison, InOneProcess, Ranks, Share, whole
from proofbook.runners.judging.ranks import Program, run


def assert_same_as_one_process(
    program: Program, world_size: int, in_one_process: InOneProcess, *arguments: object,
    share: Share = whole,
) -> None:  # fmt: skip
    """Run `program` on ranks; assert that each returns its share of `in_one_process(dtype)`.

    The program returns tensors by name, and `in_one_process` the same ones, in float32 and in
    float64. A rank should hold the `share` of a tensor: all of it, or `comparison.first_rows`.
    """
    ranks = run(program, world_size, *arguments)
    _assert(ranks, comparison.as_one_process(ranks, in_one_process, share))


def assert_sends(
    program: Program, world_size: int, payload: Mapping[str, float], *arguments: object,
    at_most: bool = False,
) -> None:  # fmt: skip
    """Run `program` on ranks; assert bytes passed to each operation (`all_reduce`, …), no other.

    With `at_most`, less is allowed, too.
    """
    ranks = run(program, world_size, *arguments)
    _assert(ranks, comparison.sent(ranks, payload, at_most=at_most))


def assert_peak(
    program: Program, world_size: int, at_most: float, *arguments: object, slack: float = 0
) -> None:
    """Run `program` on ranks; assert that none holds over `at_most` bytes above metering's start.

    `with rank.metered():` around a part of the program judges that part alone; `slack` allows the
    bytes of a buffer that gloo may free late.
    """
    ranks = run(program, world_size, *arguments)
    _assert(ranks, [comparison.peak(ranks, at_most, slack)])


def assert_calls(
    program: Program, world_size: int, operations: Sequence[str], *arguments: object
) -> None:
    """Assert the collectives that each rank calls, in their order."""
    ranks = run(program, world_size, *arguments)
    _assert(ranks, [comparison.order(ranks, operations)])


def _assert(ranks: Ranks, comparisons: Iterable[Comparison]) -> None:
    failed = [
        f"rank {rank.rank} ({rank.failure.kind}): {rank.failure.message}"
        + (f", at {rank.failure.line}: {rank.failure.code}" if rank.failure.line else "")
        for rank in ranks if rank.failure
    ]  # fmt: skip
    wrong = [f"{c.what} {c.state}: {c.says}" for c in comparisons if c.state != "agrees"]
    if failed or wrong:
        raise AssertionError("\n".join([*failed, *wrong]))
