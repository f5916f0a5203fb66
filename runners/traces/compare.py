"""`python -m runners compare A B`: what two machines' traces say differently, beyond their spread.

In: the traces of two folders. Out: lines. Outcomes and everything that a rerun must reproduce
should be equal, and each field where they are not is listed with how far apart it is. Two times
differ where their quartile ranges do not overlap. What the generator's claims say of it, `python -m
generator compare A B` tells: laws should hold on both, observations need not. No torch; pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runners.traces.digest import brought_up
from runners.traces.fields import is_of_time
from runners.traces.files import NOT_TRACES, TraceError, machine_folders, read
from runners.traces.measured import SampledSeconds
from runners.traces.records import Run, Trace

FEWEST_SAMPLES = 5
# Fields of a run that are set, or are words for people, or that the kernel rounds.
NOT_COMPARED = frozenset(
    {"settings", "timing", "printed", "allocator", "error", "model", "reason", "circumstances"}
)
_POSITION = re.compile(r"\[\d+\]")
KERNEL_SHARE = 0.02  # the meter itself accepts that the kernel's peak is so far off


@dataclass
class Difference:
    """What two machines measured differently, as lines, and how much stayed.

    Attributes:
        outcomes: runs that ended otherwise.
        fields: what a rerun must reproduce, and did not.
        times: whose quartile ranges lie apart.
        left_out: what cannot be compared, and why.
        num_equal: outcomes and fields that stayed.
        num_overlapping: times that stayed within each other's spread.
        num_too_few: times that have too few samples for a spread.
    """

    outcomes: list[str] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)
    times: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    num_equal: int = 0
    num_overlapping: int = 0
    num_too_few: int = 0

    def lines(self) -> list[str]:
        """The whole as a person reads it."""
        parts = (
            ("ended otherwise", self.outcomes),
            ("should be equal, and is not", self.fields),
            ("took another time, beyond its spread", self.times),
            ("not compared", self.left_out),
        )
        said = [line for head, rows in parts if rows for line in (f"{head}:", *_indented(rows))]
        stayed = (
            f"stayed: {self.num_equal} outcomes and fields are equal, "
            f"{self.num_overlapping} times within their spread; "
            f"{self.num_too_few} times have too few samples to tell"
        )
        return [*said, stayed]


def _indented(rows: list[str]) -> list[str]:
    return [f"  {row}" for row in rows]


def traces_in(folder: Path, traces: Path | None = None) -> dict[str, Trace]:
    """Every trace of a machine's folder, by experiment.

    Args:
        folder: the machine's.
        traces: the folder of all machines' folders; the one above where None.

    Raises:
        TraceError: the folder is none of a machine's, or a trace cannot be read.
    """
    if not (folder / "machine.json").is_file():
        traces = traces or folder.parent
        name, known = folder.relative_to(traces).as_posix(), machine_folders(traces)
        raise TraceError(f"no machine {name!r}; there are: {', '.join(known) or 'none'}")
    paths = sorted(folder.glob("*.json"))
    return {p.stem: read(p) for p in paths if p.stem not in NOT_TRACES}


def compare(first: Mapping[str, Trace], second: Mapping[str, Trace]) -> Difference:
    """What two sets of traces say differently."""
    found = Difference()
    for name in sorted({*first, *second}):
        if name not in first or name not in second:
            lacks = "first" if name not in first else "second"
            found.left_out.append(f"{name}: not measured on the {lacks}")
            continue
        codes = {brought_up(name, trace.code.digest) for trace in (first[name], second[name])}
        if len(codes) > 1:
            found.left_out.append(f"{name}: measured by other code")
            continue
        _compare_runs(name, first[name], second[name], found)
    return found


def _compare_runs(name: str, first: Trace, second: Trace, found: Difference) -> None:
    for run in first.runs.keys() & second.runs.keys():
        path, one, other = f"{name}.{run}", first.runs[run], second.runs[run]
        if _program(first, one) != _program(second, other):
            found.left_out.append(f"{path}: measured with another program")
            continue
        if "skipped" in (one.status, other.status):
            if one.status != other.status:
                which = "first" if one.status == "skipped" else "second"
                found.left_out.append(f"{path}: skipped on the {which}")
            continue
        if (one.settings, one.world_size) != (other.settings, other.world_size):
            found.left_out.append(f"{path}: has other settings there")
            continue
        if one.status != other.status:
            found.outcomes.append(f"{path}: {one.status} | {other.status}")
            continue
        found.num_equal += 1
        _compare_fields(path, one, other, found)
        _compare_times(path, one, other, found)
    for rows in (found.outcomes, found.fields, found.times, found.left_out):
        rows.sort()


def _program(trace: Trace, run: Run) -> str | None:
    """The digest of the program that a run executed."""
    return trace.code.programs.get(str(run.settings.get("program")))


def _compare_fields(path: str, one: Run, other: Run, found: Difference) -> None:
    """One line for each field that differs, however many ranks, epochs or steps it has."""
    left, right = dict(_leaves(one)), dict(_leaves(other))
    apart: dict[str, list[str | float]] = defaultdict(list)
    for name in left.keys() | right.keys():
        if is_of_time(_POSITION.sub("", name).split(".")):
            continue  # one measurement of it has no spread
        distance = _distance(name, left.get(name), right.get(name))
        if distance is None:
            found.num_equal += 1
        else:
            apart[_POSITION.sub("[]", name)].append(distance)
    for name, distances in apart.items():
        shares = [d for d in distances if isinstance(d, float)]
        most = f"at most {max(shares):.2g} of the larger" if shares else str(distances[0])
        times = f", {len(distances)} times" if len(distances) > 1 else ""
        found.fields.append(f"{path}.{name}: {most}{times}")


def _leaves(run: Run) -> Iterator[tuple[str, object]]:
    """Every value that a rerun must reproduce, with its path."""
    dumped = run.model_dump(mode="json")
    for name, value in dumped.items():
        if name not in NOT_COMPARED:
            yield from _below(name, value)


def _below(path: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name != "failure":  # its words are the allocator's, the kernel's, the peer's
                yield from _below(f"{path}.{name}", inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _below(f"{path}[{index}]", inner)
    else:
        yield path, value


def _distance(path: str, one: object, other: object) -> str | float | None:
    """How far apart two values are: a share of the larger, or in words; None where they agree."""
    if one == other:
        return None
    numbers = [v for v in (one, other) if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < 2:
        return f"{one} | {other}"
    largest = max(abs(n) for n in numbers)
    share = abs(numbers[0] - numbers[1]) / largest if largest else 0.0
    if path.endswith("kernel_peak_bytes") and share <= KERNEL_SHARE:
        return None
    return float(share)


def _compare_times(path: str, one: Run, other: Run, found: Difference) -> None:
    left, right = _times(one), _times(other)
    for name in sorted(left.keys() & right.keys()):
        a, b = left[name], right[name]
        if min(a.num_samples, b.num_samples) < FEWEST_SAMPLES:
            found.num_too_few += 1
        elif overlap(a, b):
            found.num_overlapping += 1
        else:
            found.times.append(
                f"{path}.{name}: {a.median_seconds:.4g} s | {b.median_seconds:.4g} s "
                f"({b.median_seconds / a.median_seconds:.2f} times)"
            )


def _times(run: Run) -> dict[str, SampledSeconds]:
    steps = {"timing.step": run.timing.step} if run.timing.step else {}
    measured = {f"timing.measures.{name}": s for name, s in run.timing.measures.items()}
    return {**steps, **measured}


def overlap(one: SampledSeconds, other: SampledSeconds) -> bool:
    """Whether the quartile ranges of two times have anything in common."""
    return (
        one.first_quartile_seconds <= other.third_quartile_seconds
        and other.first_quartile_seconds <= one.third_quartile_seconds
    )
