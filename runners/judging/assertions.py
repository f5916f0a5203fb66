"""What is judged of programs, as assertions for tests of any project.

    from runners.judging.assertions import assert_peak, assert_same_as_one_process, assert_sends

Each runs its program anew, on gloo and CPU, and raises an `AssertionError` that names every
comparison which does not agree: what differs, on which rank, and where a rank failed. What could
not be compared fails as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from runners.judging import comparison
from runners.judging.comparison import Comparison, One, Share, whole
from runners.judging.ranks import Program, RankResult, run


def assert_same_as_one_process(
    program: Program, world_size: int, one: One, *arguments: object, share: Share = whole
) -> None:
    """Assert that ranks hold what one process computes.

    Args:
        program: returns a mapping of names to tensors.
        world_size: the number of ranks.
        one: `one(dtype)` computes the same names in one process, in float32 and in float64.
        arguments: of the program.
        share: what a rank should hold of a whole tensor: all of it, or `comparison.first_rows`.
    """
    seen = run(program, world_size, *arguments)
    _assert(seen, comparison.as_one_process(seen, one, share))


def assert_sends(
    program: Program, world_size: int, payload: Mapping[str, float], *arguments: object,
    at_most: bool = False,
) -> None:  # fmt: skip
    """Assert what each rank communicates.

    Args:
        program: what runs.
        world_size: the number of ranks.
        payload: bytes by operation (`all_reduce`, `send`, …); any other operation is a failure.
        arguments: of the program.
        at_most: less is allowed, too.
    """
    seen = run(program, world_size, *arguments)
    _assert(seen, comparison.sent(seen, payload, at_most=at_most))


def assert_peak(
    program: Program, world_size: int, at_most: float, *arguments: object, slack: float = 0
) -> None:
    """Assert that no rank holds more tensor bytes, above what it held when metering began.

    Args:
        program: what runs; `with rank.metered():` around a part judges that part alone.
        world_size: the number of ranks.
        at_most: in bytes.
        arguments: of the program.
        slack: bytes of a buffer that gloo may free late.
    """
    seen = run(program, world_size, *arguments)
    _assert(seen, [comparison.peak(seen, at_most, slack)])


def assert_calls(
    program: Program, world_size: int, operations: Sequence[str], *arguments: object
) -> None:
    """Assert which collectives each rank calls, in their order."""
    seen = run(program, world_size, *arguments)
    _assert(seen, [comparison.order(seen, operations)])


def _assert(seen: Sequence[RankResult], found: Iterable[Comparison]) -> None:
    failed = [
        f"rank {one.rank} ({one.failure.kind}): {one.failure.message}"
        + (f", at {one.failure.line}: {one.failure.code}" if one.failure.line else "")
        for one in seen if one.failure
    ]  # fmt: skip
    wrong = [f"{one.what} {one.state}: {one.says}" for one in found if one.state != "agrees"]
    if failed or wrong:
        raise AssertionError("\n".join([*failed, *wrong]))
