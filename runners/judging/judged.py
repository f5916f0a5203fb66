"""The comparisons of the judge as assertions, for tests of any project.

    ranks = JudgedProgram(averaged, 4)
    ranks.assert_sends({"all_reduce": 16})

A `JudgedProgram` has run once, on gloo and CPU. Each of its methods raises an `AssertionError` that
names every comparison which does not agree: what differs, on which rank, and where a rank failed.
What could not be compared fails as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from proofbook.runners.judging import comparison
from proofbook.runners.judging.comparison import Comparison, InOneProcess, Share, whole
from proofbook.runners.judging.ranks import Program, run


class JudgedProgram:
    """What ranks did that ran a program, with its arguments, once."""

    def __init__(self, program: Program, world_size: int, *arguments: object) -> None:
        self.ranks = run(program, world_size, *arguments)  # a `RankResult` of each

    def assert_same_as_one_process(
        self, in_one_process: InOneProcess, share: Share = whole
    ) -> None:
        """Assert that each rank returns its share of `in_one_process(dtype)`.

        The program returns tensors by name, and `in_one_process` the same ones, in float32 and in
        float64. A rank should hold the `share` of a tensor: all of it, or `comparison.first_rows`.
        """
        self._assert(comparison.as_one_process(self.ranks, in_one_process, share))

    def assert_sends(self, payload: Mapping[str, float], *, at_most: bool = False) -> None:
        """Assert the bytes that ranks pass to each operation (`all_reduce`, …), and to no other.

        With `at_most`, less is allowed, too.
        """
        self._assert(comparison.sent(self.ranks, payload, at_most=at_most))

    def assert_peak(self, at_most: float, slack: float = 0) -> None:
        """Assert that no rank holds over `at_most` bytes above the start of its metering.

        `with rank.metered():` around a part of the program judges that part alone; `slack` allows
        the bytes of a buffer that gloo may free late.
        """
        self._assert([comparison.peak(self.ranks, at_most, slack)])

    def assert_calls(self, operations: Sequence[str]) -> None:
        """Assert the collectives that each rank calls, in their order."""
        self._assert([comparison.order(self.ranks, operations)])

    def _assert(self, comparisons: Iterable[Comparison]) -> None:
        failed = [
            f"rank {rank.rank} ({rank.failure.kind}): {rank.failure.message}"
            + (f", at {rank.failure.line}: {rank.failure.code}" if rank.failure.line else "")
            for rank in self.ranks if rank.failure
        ]  # fmt: skip
        wrong = [f"{c.what} {c.state}: {c.says}" for c in comparisons if c.state != "agrees"]
        if failed or wrong:
            raise AssertionError("\n".join([*failed, *wrong]))
