"""`python -m runners compare A B`: what two machines' traces say differently, beyond their spread.

In: the traces of two folders. Out: lines, of which those that matter come first. Outcomes and
everything else that a rerun must reproduce should be equal, by the rule of `tolerance.py`; each
field where they are not is listed with how far apart it is, the largest difference first. What the
kernel counts, and what another processor or torch rounds, may differ and is summed up. Two times
differ where their quartile ranges do not overlap. What the generator's claims say of it, `python -m
generator compare A B` tells: laws should hold on both, observations need not. No torch; pure.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from runners.traces.fields import Key, is_of_kernel, is_of_time
from runners.traces.files import TraceError, machine_folders, read, trace_paths
from runners.traces.measured import SampledSeconds
from runners.traces.records import Run, Trace
from runners.traces.tolerance import FEWEST_SAMPLES, of_values, overlap

# Fields of a run that are set, or are words for people, or whose times are compared by themselves.
NOT_COMPARED = frozenset(
    {"settings", "timing", "printed", "allocator", "error", "model", "reason", "circumstances"}
)
LONGEST = 60  # characters of words that differ


class Apart(NamedTuple):
    """A field of a run that differs, however many ranks, epochs or steps it has.

    Attributes:
        share: the largest difference, of the larger value; infinite between words.
        path: of experiment, run and field.
        num: how many values of the field differ.
        words: both values, where these are words.
    """

    share: float
    path: str
    num: int
    words: str = ""

    def line(self) -> str:
        """The field and how far apart it is."""
        most = self.words or f"at most {self.share:.2g} of the larger"
        return f"{self.path}: {most}{f', {self.num} times' if self.num > 1 else ''}"


@dataclass
class Difference:
    """What two machines measured differently, and how much stayed.

    Attributes:
        circumstances: of measuring, such as Python, where they differ: a line each.
        outcomes: runs that ended otherwise, a line each.
        unequal: fields that should be equal by the rule, and are not.
        may_differ: fields that the kernel counted, or that are within what may be rounded.
        times: whose quartile ranges lie apart, a line each.
        left_out: what cannot be compared, and why, a line each.
        num_equal: outcomes and fields that stayed.
        num_overlapping: times that stayed within each other's spread.
        num_too_few: times that have too few samples for a spread.
    """

    circumstances: list[str] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    unequal: list[Apart] = field(default_factory=list)
    may_differ: list[Apart] = field(default_factory=list)
    times: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    num_equal: int = 0
    num_overlapping: int = 0
    num_too_few: int = 0

    @property
    def is_none(self) -> bool:
        """Whether nothing differs that should be equal."""
        return not (self.outcomes or self.unequal or self.times)

    def lines(self) -> list[str]:
        """The whole as a person reads it."""
        parts = (
            ("measured under other circumstances", self.circumstances),
            ("ended otherwise", self.outcomes),
            ("should be equal, and is not", [one.line() for one in _largest_first(self.unequal)]),
            ("may differ from machine to machine", _summed_up(self.may_differ)),
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


def _largest_first(fields: Iterable[Apart]) -> list[Apart]:
    """Fields by how far apart they are; words first."""
    return sorted(fields, key=lambda one: (-one.share, one.path))


def _summed_up(fields: Iterable[Apart]) -> list[str]:
    found = [one for one in _largest_first(fields) if math.isfinite(one.share)]
    num = f"{len(found)} field{'s' if len(found) > 1 else ''}"
    return [f"{num}, most of all {found[0].line()}"] if found else []


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
    return {path.stem: read(path) for path in trace_paths(folder)}


def compare(first: Mapping[str, Trace], second: Mapping[str, Trace]) -> Difference:
    """What two sets of traces say differently."""
    found = Difference()
    for name in sorted({*first, *second}):
        if name not in first or name not in second:
            lacks = "first" if name not in first else "second"
            found.left_out.append(f"{name}: not measured on the {lacks}")
            continue
        one, other = first[name], second[name]
        _compare_circumstances(one, other, found)
        if one.code.digest != other.code.digest:
            found.left_out.append(f"{name}: measured by other code")
            continue
        for run in sorted(one.runs.keys() & other.runs.keys()):
            _compare_run(f"{name}.{run}", one, other, run, found)
    return found


def _compare_circumstances(first: Trace, second: Trace, found: Difference) -> None:
    one, other = (trace.circumstances.model_dump() for trace in (first, second))
    for name in one:
        line = f"{name.replace('_', ' ')}: {one[name]} | {other[name]}"
        if one[name] != other[name] and line not in found.circumstances:
            found.circumstances.append(line)


def _compare_run(path: str, first: Trace, second: Trace, name: str, found: Difference) -> None:
    one, other = first.runs[name], second.runs[name]
    if _program(first, one) != _program(second, other):
        found.left_out.append(f"{path}: measured with another program")
    elif "skipped" in (one.status, other.status):
        if one.status != other.status:
            which = "first" if one.status == "skipped" else "second"
            found.left_out.append(f"{path}: skipped on the {which}")
    elif (one.settings, one.world_size) != (other.settings, other.world_size):
        found.left_out.append(f"{path}: has other settings there")
    elif one.status != other.status:
        found.outcomes.append(f"{path}: {one.status} | {other.status}")
    else:
        found.num_equal += 1
        _compare_fields(path, one, other, found)
        _compare_times(path, one, other, found)


def _program(trace: Trace, run: Run) -> str | None:
    """The digest of the program that a run executed."""
    return trace.code.programs.get(str(run.settings.get("program")))


def _compare_fields(path: str, one: Run, other: Run, found: Difference) -> None:
    """Note each field that differs: whether it may, by the rule, and how far apart it is."""
    left, right = dict(_leaves(one)), dict(_leaves(other))
    apart: dict[str, list[tuple[object, object]]] = defaultdict(list)
    differing: set[str] = set()
    for steps in left.keys() | right.keys():
        if is_of_time(steps):
            continue  # one measurement of it has no spread
        a, b = left.get(steps), right.get(steps)
        if a == b:
            found.num_equal += 1
            continue
        name = _written(steps)
        apart[name].append((a, b))
        if not (is_of_kernel(steps) or of_values(steps, a, b, is_like=False).is_same):
            differing.add(name)
    for name, pairs in apart.items():
        kind = found.unequal if name in differing else found.may_differ
        kind.append(_apart(f"{path}.{name}", pairs))


def _written(steps: tuple[Key, ...]) -> str:
    """A path without the positions: `ranks[].memory.peak_bytes`."""
    parts = ("[]" if isinstance(step, int) else f".{step}" for step in steps)
    return "".join(parts).removeprefix(".")


def _apart(path: str, pairs: list[tuple[object, object]]) -> Apart:
    shares = {_share(*pair): pair for pair in pairs}
    share = max(shares)
    if math.isfinite(share):
        return Apart(share, path, len(pairs))
    words = " | ".join(repr(str(value)[:LONGEST]) for value in shares[share])
    return Apart(share, path, len(pairs), words)


def _leaves(run: Run) -> Iterator[tuple[tuple[Key, ...], object]]:
    """Every value that a rerun must reproduce, with its path."""
    for name, value in run.model_dump(mode="json").items():
        if name not in NOT_COMPARED:
            yield from _below((name,), value)


def _below(steps: tuple[Key, ...], value: object) -> Iterator[tuple[tuple[Key, ...], object]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name != "failure":  # its words are the allocator's, the kernel's, the peer's
                yield from _below((*steps, name), inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _below((*steps, index), inner)
    else:
        yield steps, value


def _share(one: object, other: object) -> float:
    """How far apart two values are, as a share of the larger; infinite where one is no number."""
    numbers = [v for v in (one, other) if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < 2:
        return math.inf
    largest = max(abs(n) for n in numbers)
    return float(abs(numbers[0] - numbers[1]) / largest) if largest else 0.0


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
