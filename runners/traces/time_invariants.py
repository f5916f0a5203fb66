"""What a trace says of times: summaries, clocks and timelines that follow from each other. Pure.

In: a trace, a run. Out: what contradicts itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise

from runners.traces.measured import SampledSeconds, Timing
from runners.traces.records import Run, Trace
from runners.traces.violation import Place, Violation, is_each_rank

TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
# Times are rounded to a tenth of a microsecond; at most four of them make a sum that is compared.
ROUNDING_SECONDS = 2.5e-7
SHARE_ROUNDING = 5.1e-6  # a share is rounded to five digits, from times that were not rounded yet


def of_recording(trace: Trace) -> Iterator[Violation]:
    """A trace says at which time its first run began."""
    try:
        datetime.strptime(trace.recorded_at, TIME_FORMAT)  # noqa: DTZ007 the Z says UTC
    except ValueError:
        said = f"{trace.recorded_at!r} is not a UTC time such as 2026-01-31T09:30:00Z"
        yield Violation(("recorded_at",), said)


def of_timing(place: Place, run: Run) -> Iterator[Violation]:
    """Summaries follow from samples, clocks are one a rank, and a timeline is a whole step."""
    timing = run.timing
    if timing.step is not None:
        yield from _of_samples((*place, "step"), timing.step)
    for name, times in timing.measures.items():
        yield from _of_samples((*place, "measures", name), times)
    clocks = [clock.rank for clock in timing.clocks]
    if clocks and not is_each_rank(clocks, run.world_size):
        yield Violation((*place, "clocks"), f"are of the ranks {clocks}, not one of each rank")
    for position, clock in enumerate(timing.clocks):
        if clock.rank == 0 and (clock.offset_seconds or clock.error_seconds):
            at = (*place, "clocks", position)
            yield Violation(at, "is rank 0's clock, and lies off that of rank 0")
    yield from _of_timeline(place, timing, run.world_size)


def _of_samples(place: Place, times: SampledSeconds) -> Iterator[Violation]:
    """Count, quartiles and median follow from the samples."""
    if not times.samples:
        yield Violation((*place, "samples"), "holds no sample")
        return
    try:
        whole = SampledSeconds.of(times.samples)
    except ValueError:  # finite samples, whose quartiles are not
        yield Violation((*place, "samples"), "no time is so long")
        return
    if times.num_samples != whole.num_samples:
        said = f"is {times.num_samples}, and there are {whole.num_samples} samples"
        yield Violation((*place, "num_samples"), said)
    for field in ("first_quartile_seconds", "median_seconds", "third_quartile_seconds"):
        given, found = getattr(times, field), getattr(whole, field)
        if not math.isclose(given, found, rel_tol=1e-6, abs_tol=ROUNDING_SECONDS):
            yield Violation((*place, field), f"is {given!r}, and the samples give {found!r}")


def _of_timeline(place: Place, timing: Timing, world_size: int) -> Iterator[Violation]:
    """Spans of a rank follow each other through the step, and its times sum to that step."""
    if not timing.timeline and not timing.ranks:
        return
    by_rank: dict[int, list[int]] = {}
    for index, span in enumerate(timing.timeline):
        by_rank.setdefault(span.rank, []).append(index)
    numbers = [one.rank for one in timing.ranks]
    for field, found in (("timeline", list(by_rank)), ("ranks", numbers)):
        if not is_each_rank(found, world_size):
            said = f"is of the ranks {found}, not of each of {world_size}"
            yield Violation((*place, field), said)
            return
    whole = max(span.end_seconds for span in timing.timeline)
    for indices in by_rank.values():
        yield from _of_spans((*place, "timeline"), timing, indices, whole)
    yield from _of_rank_times((*place, "ranks"), timing, whole)


def _of_spans(
    place: Place, timing: Timing, indices: Sequence[int], whole: float
) -> Iterator[Violation]:
    for index in indices:
        span = timing.timeline[index]
        if span.end_seconds < span.start_seconds:
            yield Violation((*place, index, "end_seconds"), "lies before the start of the span")
    if timing.timeline[indices[0]].start_seconds > ROUNDING_SECONDS:
        said = "does not begin with the step, as the first span of a rank does"
        yield Violation((*place, indices[0], "start_seconds"), said)
    if whole - timing.timeline[indices[-1]].end_seconds > ROUNDING_SECONDS:
        said = "does not end with the step, as the last span of a rank does"
        yield Violation((*place, indices[-1], "end_seconds"), said)
    for before, after in pairwise(indices):
        gap = timing.timeline[after].start_seconds - timing.timeline[before].end_seconds
        if abs(gap) > ROUNDING_SECONDS:
            said = "does not begin where the span before it ends"
            yield Violation((*place, after, "start_seconds"), said)


def _of_rank_times(place: Place, timing: Timing, whole: float) -> Iterator[Violation]:
    for index, one in enumerate(timing.ranks):
        total = one.compute_seconds + one.communication_seconds + one.waiting_seconds
        if not abs(total - whole) <= ROUNDING_SECONDS:
            said = f"compute, communication and waiting sum to {total!r} of a step of {whole!r}"
            yield Violation((*place, index), said)
        share = one.waiting_seconds / whole if whole else 0.0
        if not abs(one.waiting_share - share) * whole <= SHARE_ROUNDING * whole + ROUNDING_SECONDS:
            said = f"is {one.waiting_share!r}, and waiting takes {share:.5f} of the step"
            yield Violation((*place, index, "waiting_share"), said)
