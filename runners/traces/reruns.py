"""What `reruns.json` holds: runs of a machine's traces, measured a second time. Pure; no torch.

Its pairs give the *floor* of a forecast's error: how far the first measurement of a run predicts
the second one on the same machine. No forecast can be expected to come nearer than that. The
traces stay as they are; a pair counts only as long as its first half is the present trace's.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from runners.traces.quiet_record import Quiet
from runners.traces.records import Run, Trace
from runners.traces.schema import Record, Status

Quantity = Literal["peak_bytes", "step_seconds"]
QUANTITIES: tuple[Quantity, ...] = ("peak_bytes", "step_seconds")
NEAR_SHARE = 0.1  # an error this small or smaller counts as near


class Pair(Record):
    """One quantity of a run, measured twice."""

    first: float = Field(gt=0, description="as the trace holds it")
    second: float = Field(gt=0, description="as the rerun measured it")

    @property
    def error(self) -> float:
        """The error of predicting the rerun from its predecessor, as a share of the rerun."""
        return (self.first - self.second) / self.second


class Rerun(Record):
    """One run, measured a second time."""

    status: Status = Field(description="how the rerun ended")
    step_seconds: Pair | None = Field(description="median steps; null: not both have one")
    peak_bytes: Pair | None = Field(
        description="tensor bytes of the rank with the highest peak; null: not metered again"
    )


class ExperimentReruns(Record):
    """The runs of one experiment that were measured a second time."""

    first_at: str = Field(description="`recorded_at` of the trace")
    digest: str = Field(description="of the code that measured both")
    second_at: str = Field(description="when the first of the reruns began: UTC, ISO 8601, seconds")
    quiet: Quiet | None = Field(description="around the reruns; null: not recorded, or interrupted")
    runs: dict[str, Rerun]

    @property
    def is_disturbed(self) -> bool:
        """Whether the machine was not quiet: its pairs tell of other processes and are left out."""
        return self.quiet is not None and not self.quiet.is_quiet

    def is_of(self, trace: Trace) -> bool:
        """Whether this trace holds the first half of each pair."""
        return (self.first_at, self.digest) == (trace.recorded_at, trace.code.digest)


class Reruns(Record):
    """Every run of a machine that was measured twice: `reruns.json` of its folder."""

    schema_version: Literal[1]
    machine: str
    experiments: dict[str, ExperimentReruns]


@dataclass(frozen=True)
class Floor:
    """How well reruns are predicted from their predecessors.

    Attributes:
        num_pairs: that were compared.
        median_error: the median of the absolute errors.
        num_near: pairs whose error is at most `NEAR_SHARE`.
    """

    num_pairs: int
    median_error: float
    num_near: int

    @property
    def near_share(self) -> float:
        """The share of the pairs whose error is at most `NEAR_SHARE`."""
        return self.num_near / self.num_pairs


def peak_of(run: Run) -> int | None:
    """The highest peak among the ranks of a run, in tensor bytes."""
    peaks = [one.memory.peak_bytes for one in run.ranks if one.memory is not None]
    return max((peak for peak in peaks if peak is not None), default=None)


def pair(first: float | None, second: float | None) -> Pair | None:
    """Two measurements; None where one of them is missing."""
    return Pair(first=first, second=second) if first and second else None


def rerun_of(first: Run, second: Run) -> Rerun:
    """What is kept of a run and its rerun."""
    steps = [one.timing.step.median_seconds if one.timing.step else None for one in (first, second)]
    return Rerun(
        status=second.status,
        step_seconds=pair(*steps),
        peak_bytes=pair(peak_of(first), peak_of(second)),
    )


def pairs(reruns: Reruns | None, traces: Mapping[str, Trace]) -> dict[str, Rerun]:
    """The quiet reruns whose first half is in these traces, by `experiment.run`."""
    found = reruns.experiments if reruns else {}
    return {
        f"{name}.{run}": rerun
        for name, one in found.items()
        if name in traces and one.is_of(traces[name]) and not one.is_disturbed
        for run, rerun in one.runs.items()
        if run in traces[name].runs
    }


def errors(found: Mapping[str, Rerun], quantity: Quantity) -> dict[str, float]:
    """The signed error of each pair of a quantity, by `experiment.run`."""
    both: dict[str, Pair | None] = {
        path: getattr(rerun, quantity) for path, rerun in found.items() if rerun.status != "skipped"
    }
    return {path: one.error for path, one in both.items() if one is not None}


def floor(all_errors: Iterable[float]) -> Floor | None:
    """The floor from signed errors; None without any."""
    sizes = [abs(error) for error in all_errors]
    if not sizes:
        return None
    return Floor(len(sizes), statistics.median(sizes), sum(s <= NEAR_SHARE for s in sizes))
