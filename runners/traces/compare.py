"""`python -m runners compare A B`: what two machines' traces say differently, beyond their spread.

In: the traces of two folders. Out: lines, of which those that matter come first. Outcomes and
everything else that a rerun must reproduce should be equal, by the rule of `tolerance.py`; each
field where they are not is listed with how far apart it is, the largest difference first. What the
kernel counts, and what another processor or torch rounds, may differ. Two times differ where their
quartile ranges do not overlap. No torch; pure.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runners.traces.fields import Key, is_of_kernel, is_of_time
from runners.traces.files import TraceError, machine_folders, read, trace_paths
from runners.traces.measured import SampledSeconds
from runners.traces.records import Run, Trace
from runners.traces.tolerance import FEWEST_SAMPLES, is_number, of_values, overlap

# Fields of a run that are set, or are words for people, or whose times are compared by themselves.
NOT_COMPARED = frozenset(
    {"settings", "timing", "printed", "allocator", "error", "model", "reason", "circumstances"}
)
LONGEST = 60  # characters of words that differ
Steps = tuple[Key, ...]


Apart = tuple[float, str]  # how far apart a field is, of the larger value, and the line of it


@dataclass
class Difference:
    """What two machines measured differently, a line each, and how much stayed."""

    circumstances: list[str] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    unequal: list[Apart] = field(default_factory=list)  # by the rule
    times: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # cannot be compared
    num_equal: int = 0  # outcomes and fields
    num_overlapping: int = 0  # times
    num_too_few: int = 0  # times with too few samples

    @property
    def is_none(self) -> bool:
        """Whether nothing differs that should be equal."""
        return not (self.outcomes or self.unequal or self.times)

    def lines(self) -> list[str]:
        """The whole as a person reads it."""
        unequal = [line for _, line in sorted(self.unequal, key=lambda one: (-one[0], one[1]))]
        parts = {
            "measured under other circumstances": self.circumstances,
            "ended otherwise": self.outcomes,
            "should be equal, and is not": unequal,
            "took another time, beyond its spread": self.times,
            "not compared": self.left_out,
        }
        said = []
        for head, rows in parts.items():
            said += [f"{head}:", *(f"  {row}" for row in rows)] if rows else []
        said.append(
            f"stayed: {self.num_equal} outcomes and fields are equal, "
            f"{self.num_overlapping} times within their spread; "
            f"{self.num_too_few} times have too few samples to tell"
        )
        return said


def traces_of(machine: str, traces: Path) -> dict[str, Trace]:
    """Every trace of a machine, by experiment.

    Raises:
        TraceError: the folder of all machines has none of this name, or a trace cannot be read.
    """
    folder = traces / machine
    if not (folder / "machine.json").is_file():
        known = ", ".join(machine_folders(traces)) or "none"
        raise TraceError(f"no machine {machine!r}; there are: {known}")
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
            if _program(one, run) != _program(other, run):
                found.left_out.append(f"{name}.{run}: measured with another program")
            else:
                _compare_run(f"{name}.{run}", one.runs[run], other.runs[run], found)
    return found


def _program(trace: Trace, run: str) -> str | None:
    """The digest of the program that a run executed."""
    return trace.code.programs.get(str(trace.runs[run].settings.get("program")))


def _compare_circumstances(first: Trace, second: Trace, found: Difference) -> None:
    other = vars(second.circumstances)
    for name, value in vars(first.circumstances).items():
        line = f"{name.replace('_', ' ')}: {value} | {other[name]}"
        if value != other[name] and line not in found.circumstances:
            found.circumstances.append(line)


def _compare_run(path: str, one: Run, other: Run, found: Difference) -> None:
    if "skipped" in (one.status, other.status):
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


def _compare_fields(path: str, one: Run, other: Run, found: Difference) -> None:
    """Note each field that differs and may not, by the rule, and how far apart it is."""
    left, right = dict(_leaves(one)), dict(_leaves(other))
    apart: dict[str, list[tuple[object, object]]] = defaultdict(list)
    for steps in left.keys() | right.keys():
        if is_of_time(steps):
            continue  # one measurement of it has no spread
        a, b = left.get(steps), right.get(steps)
        if a == b:
            found.num_equal += 1
        elif not (is_of_kernel(steps) or of_values(steps, a, b, is_like=False).is_same):
            name = "".join("[]" if isinstance(step, int) else f".{step}" for step in steps)
            apart[name].append((a, b))
    found.unequal += [_apart(f"{path}{name}", pairs) for name, pairs in apart.items()]


def _leaves(run: Run) -> Iterator[tuple[Steps, object]]:
    """Every value that a rerun must reproduce, with its path."""
    waiting: list[tuple[Steps, object]] = [
        ((name,), value)
        for name, value in run.model_dump(mode="json").items()
        if name not in NOT_COMPARED
    ]
    while waiting:
        steps, value = waiting.pop()
        if isinstance(value, dict):  # words of a failure are the allocator's or the kernel's
            waiting += [((*steps, k), one) for k, one in value.items() if k != "failure"]
        elif isinstance(value, list):
            waiting += [((*steps, k), one) for k, one in enumerate(value)]
        else:
            yield steps, value


def _apart(path: str, pairs: list[tuple[object, object]]) -> Apart:
    share, pair = max(((_share(*pair), pair) for pair in pairs), key=lambda one: one[0])
    words = f"at most {share:.2g} of the larger"
    if not math.isfinite(share):
        words = " | ".join(repr(str(value)[:LONGEST]) for value in pair)
    times = f", {len(pairs)} times" if len(pairs) > 1 else ""
    return share, f"{path}: {words}{times}"


def _share(one: object, other: object) -> float:
    """How far apart two values are, as a share of the larger; infinite where one is no number."""
    if not (is_number(one) and is_number(other)):
        return math.inf
    return float(abs(one - other) / (max(abs(one), abs(other)) or 1))


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
