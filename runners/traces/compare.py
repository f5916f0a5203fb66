"""`python -m runners compare A B`: what two machines' traces say differently, beyond their spread.

In: the traces of two folders. Out: lines, of which those that matter come first. Outcomes and
everything else that a rerun must reproduce should be equal, by the rule of `tolerance.py`. What the
kernel counts, and what another processor or torch rounds, may differ. Two times differ where their
quartile ranges do not overlap. No torch; pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from runners.traces.fields import EACH, Key, in_words, is_of_kernel, is_of_time, written
from runners.traces.files import TraceError, machine_folders, read, trace_paths
from runners.traces.measured import SampledSeconds
from runners.traces.records import Run, Trace
from runners.traces.summary import seconds_in_words
from runners.traces.tolerance import FEWEST_SAMPLES, of_values, overlap

# Fields of a run that are set, or are words for people, or whose times are compared by themselves.
NOT_COMPARED = {
    "settings", "timing", "printed", "allocator", "error", "model", "reason", "circumstances",
}  # fmt: skip
Steps = tuple[Key, ...]


class Difference:
    """What two machines measured differently, a line each under its head, and how much stayed."""

    def __init__(self) -> None:
        self.circumstances: list[str] = []
        self.outcomes: list[str] = []
        self.unequal: list[str] = []  # by the rule
        self.times: list[str] = []
        self.left_out: list[str] = []  # cannot be compared
        self.num_equal = 0  # outcomes, fields and times

    @property
    def is_none(self) -> bool:
        """Whether nothing differs that should be equal."""
        return not (self.outcomes or self.unequal or self.times)

    def lines(self) -> list[str]:
        """The whole as a person reads it."""
        parts = {
            "measured under other circumstances": self.circumstances,
            "ended otherwise": self.outcomes,
            "should be equal, and is not": self.unequal,
            "took another time, beyond its spread": self.times,
            "not compared": self.left_out,
        }
        said = []
        for head, rows in parts.items():
            said += [f"{head}:", *(f"  {row}" for row in dict.fromkeys(rows))] if rows else []
        return [*said, f"stayed: {self.num_equal} outcomes, fields and times"]


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
    for name in sorted(first.keys() ^ second.keys()):
        lacks = "second" if name in first else "first"
        found.left_out.append(f"{name}: not measured on the {lacks}")
    for name in sorted(first.keys() & second.keys()):
        one, other = first[name], second[name]
        under = vars(other.circumstances)
        found.circumstances += [
            f"{fact.replace('_', ' ')}: {value} | {under[fact]}"
            for fact, value in vars(one.circumstances).items()
            if value != under[fact]
        ]
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
        _compare_times(path, one.timing.sampled, other.timing.sampled, found)


def _compare_fields(path: str, one: Run, other: Run, found: Difference) -> None:
    """Note each field that differs and may not, by the rule; elements of a list in one line."""
    left, right = dict(_leaves(one)), dict(_leaves(other))
    apart: dict[str, list[str]] = defaultdict(list)
    for steps in dict.fromkeys([*left, *right]):
        a, b = left.get(steps), right.get(steps)
        if of_values(steps, a, b, is_like=False).is_same:
            found.num_equal += 1
        else:
            name = written([EACH if isinstance(step, int) else step for step in steps])
            apart[name].append(f"{in_words(a, steps)} | {in_words(b, steps)}")
    for name, pairs in apart.items():
        others = f", and {len(pairs) - 1} more" if len(pairs) > 1 else ""
        found.unequal.append(f"{path}.{name}: {pairs[0]}{others}")


def _leaves(run: Run) -> Iterator[tuple[Steps, object]]:
    """Every value that a rerun must reproduce, with its path; a single time has no spread."""
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
        elif not (is_of_time(steps) or is_of_kernel(steps)):
            yield steps, value


def _compare_times(
    path: str,
    left: Mapping[str, SampledSeconds],
    right: Mapping[str, SampledSeconds],
    found: Difference,
) -> None:
    for name in sorted(left.keys() & right.keys()):
        a, b = left[name], right[name]
        if min(a.num_samples, b.num_samples) < FEWEST_SAMPLES:
            continue  # too few to tell
        if overlap(a, b):
            found.num_equal += 1
        else:
            medians = (seconds_in_words(one.median_seconds) for one in (a, b))
            found.times.append(f"{path}, {name}: {' | '.join(medians)}")
