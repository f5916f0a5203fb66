"""`python -m runners compare`: how two machines' traces differ, beyond their spread.

In: the traces of two folders. Out: lines. Outcomes and everything else that a rerun must reproduce
should be equal, by the rule of `traces/tolerance.py`. What the kernel counts, and what another
processor or torch rounds, may differ. Two times differ where their quartile ranges do not overlap.
"""

import argparse
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from runners.core.trace import machine
from runners.core.trace.fields import in_words, quantity, written
from runners.core.trace.records import Run, Trace
from runners.core.trace.spread import field_of, leaves
from runners.traces.files import read, trace_paths
from runners.traces.summary import seconds_in_words
from runners.traces.tolerance import FEWEST_SAMPLES, of_values, overlap, rounding

# What is said above the lines of each list of a `Difference`.
HEADS = {
    "circumstances": "measured under other circumstances",
    "outcomes": "ended differently",
    "unequal": "should be equal, and is not",
    "times": "took a different time, beyond its spread",
    "left_out": "not compared",
    "rounded": "decided by rounding",
}


@dataclass
class Difference:
    """What two machines measured differently, a line each under its head, and how much stayed."""

    circumstances: list[str] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    unequal: list[str] = field(default_factory=list)  # by the rule
    times: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # cannot be compared
    rounded: list[str] = field(default_factory=list)  # by the rule, not compared
    num_equal: int = 0  # outcomes, fields and times

    @property
    def is_none(self) -> bool:
        """Whether nothing differs that should be equal."""
        return not (self.outcomes or self.unequal or self.times)

    def lines(self) -> list[str]:
        """The whole as a person reads it."""
        said = []
        for name, head in HEADS.items():
            rows = dict.fromkeys(getattr(self, name))
            said += [f"{head}:", *(f"  {row}" for row in rows)] if rows else []
        return [*said, f"equal: {self.num_equal} outcomes, fields and times"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("names", nargs=2, metavar="MACHINE", help="a folder's name")


def main(arguments: argparse.Namespace) -> int:
    """Say what was measured otherwise; 1 where anything was."""
    folders = map(machine.folder_of, arguments.names)
    found = compare(*({path.stem: read(path) for path in trace_paths(one)} for one in folders))
    print("\n".join([" | ".join(arguments.names), *found.lines()]))
    return 0 if found.is_none else 1


def compare(first: Mapping[str, Trace], second: Mapping[str, Trace]) -> Difference:
    """What two sets of traces say differently."""
    found = Difference()
    for name in sorted({*first, *second}):
        if name not in first or name not in second:
            lacks = "second" if name in first else "first"
            found.left_out.append(f"{name}: not measured on the {lacks}")
            continue
        one, other = first[name], second[name]
        under = vars(other.circumstances)
        found.circumstances += [
            f"{fact.replace('_', ' ')}: {value} | {under[fact]}"
            for fact, value in vars(one.circumstances).items()
            if value != under[fact]
        ]
        if (one.code.digest, one.code.programs) != (other.code.digest, other.code.programs):
            found.left_out.append(f"{name}: measured by other code")
            continue
        for run in sorted(one.runs.keys() & other.runs.keys()):
            _compare_run(f"{name}.{run}", one.runs[run], other.runs[run], found)
    return found


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
    """Note each field that differs and may not, by the rule; elements of a list in one line."""
    left, right = leaves(one), leaves(other)
    apart: dict[str, list[str]] = defaultdict(list)
    for steps in dict.fromkeys([*left, *right]):
        a, b = left.get(steps), right.get(steps)
        kind = quantity(steps, one.quantities)
        rule = of_values(kind, a, b, rounding(steps, one, other, is_like=False))
        if a == b or rule.is_same:
            found.num_equal += 1
        elif rule.is_same is None:
            where = "digests" if kind.repeats == "bits" else f"{path}.{field_of(one, steps)}"
            found.rounded.append(f"{where}: {rule.words}")
        else:
            name = re.sub(r"\[\d+\]", "[]", written(steps))
            apart[name].append(f"{in_words(a, kind.unit)} | {in_words(b, kind.unit)}")
    for name, pairs in apart.items():
        others = f", and {len(pairs) - 1} more" if len(pairs) > 1 else ""
        found.unequal.append(f"{path}.{name}: {pairs[0]}{others}")


def _compare_times(path: str, one: Run, other: Run, found: Difference) -> None:
    left, right = one.timing.sampled, other.timing.sampled
    for name in sorted(left.keys() & right.keys()):
        a, b = left[name], right[name]
        if min(a.num_samples, b.num_samples) < FEWEST_SAMPLES:
            continue  # too few to tell
        if overlap(a, b):
            found.num_equal += 1
        else:
            medians = (seconds_in_words(times.median_seconds) for times in (a, b))
            found.times.append(f"{path}, {name}: {' | '.join(medians)}")
