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

from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.fields import in_words, path_of, quantity
from proofbook.runners.core.trace.measured import SampledSeconds
from proofbook.runners.core.trace.records import Run, Trace
from proofbook.runners.core.trace.spread import field_of, leaves
from proofbook.runners.traces.files import read, trace_paths
from proofbook.runners.traces.summary import seconds_in_words
from proofbook.runners.traces.tolerance import FEWEST_SAMPLES, compare_values, overlap, rounding

# The heading of each list of a `Difference`.
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
    """The differences between two machines, a line each, and the number of equal values."""

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
        """A list of lines: each list under its heading, and the number of equal values."""
        lines = []
        for name, head in HEADS.items():
            rows = dict.fromkeys(getattr(self, name))
            lines += [f"{head}:", *(f"  {row}" for row in rows)] if rows else []
        return [*lines, f"equal: {self.num_equal} outcomes, fields and times"]

    def add_trace(self, left: Trace, right: Trace) -> None:
        """Add how circumstances and common runs of two traces differ; no runs if the code does."""
        name, under = left.experiment, vars(right.circumstances)
        self.circumstances += [
            f"{fact.replace('_', ' ')}: {value} | {under[fact]}"
            for fact, value in vars(left.circumstances).items()
            if value != under[fact]
        ]
        if (left.code.digest, left.code.programs) != (right.code.digest, right.code.programs):
            self.left_out.append(f"{name}: measured by other code")
            return
        for run in sorted(left.runs.keys() & right.runs.keys()):
            self._add_run(f"{name}.{run}", left.runs[run], right.runs[run])

    def _add_run(self, path: str, left: Run, right: Run) -> None:
        if "skipped" in (left.status, right.status):
            if left.status != right.status:
                which = "first" if left.status == "skipped" else "second"
                is_heavy = left.is_left_out or right.is_left_out
                heavy = f"{path.partition('.')[0]}: heavier runs left out"  # one line for all
                self.left_out.append(f"{heavy if is_heavy else f'{path}: skipped'} on the {which}")
        elif (left.settings, left.world_size) != (right.settings, right.world_size):
            self.left_out.append(f"{path}: has other settings there")
        elif left.status != right.status:
            self.outcomes.append(f"{path}: {left.status} | {right.status}")
        else:
            self.num_equal += 1
            self._add_fields(path, left, right)
            self._add_times(path, left.timing.sampled, right.timing.sampled)

    def _add_fields(self, path: str, left: Run, right: Run) -> None:
        """Note each field that differs and may not, by the rule; elements of a list in one line."""
        first, second = leaves(left), leaves(right)
        apart: dict[str, list[str]] = defaultdict(list)
        for steps in dict.fromkeys([*first, *second]):
            values = first.get(steps), second.get(steps)
            kind = quantity(steps, left.quantities)
            share = rounding(steps, left, right, is_like=False)
            agreement = compare_values(kind, *values, share)
            if values[0] == values[1] or agreement.is_same:
                self.num_equal += 1
            elif agreement.is_same is None:
                where = "digests" if kind.repeats == "bits" else f"{path}.{field_of(left, steps)}"
                self.rounded.append(f"{where}: {agreement.allowed}")
            else:
                name = re.sub(r"\[\d+\]", "[]", path_of(steps))
                apart[name].append(" | ".join(in_words(value, kind.unit) for value in values))
        for name, pairs in apart.items():
            others = f", and {len(pairs) - 1} more" if len(pairs) > 1 else ""
            self.unequal.append(f"{path}.{name}: {pairs[0]}{others}")

    def _add_times(
        self, path: str, first: Mapping[str, SampledSeconds], second: Mapping[str, SampledSeconds]
    ) -> None:
        for name in sorted(first.keys() & second.keys()):
            times = first[name], second[name]
            if min(sampled.num_samples for sampled in times) < FEWEST_SAMPLES:
                continue  # too few to tell
            if overlap(*times):
                self.num_equal += 1
            else:
                medians = (seconds_in_words(sampled.median_seconds) for sampled in times)
                self.times.append(f"{path}, {name}: {' | '.join(medians)}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options and arguments to its parser."""
    parser.add_argument("names", nargs=2, metavar="MACHINE", help="a folder's name")


def main(arguments: argparse.Namespace) -> int:
    """Print how two machines' traces differ; returns 1 if anything does that should not, else 0."""
    folders = map(machine.folder_of, arguments.names)
    difference = compare(
        *({path.stem: read(path) for path in trace_paths(folder)} for folder in folders)
    )
    print("\n".join([" | ".join(arguments.names), *difference.lines()]))
    return 0 if difference.is_none else 1


def compare(first: Mapping[str, Trace], second: Mapping[str, Trace]) -> Difference:
    """The `Difference` between two machines' traces, each given by experiment."""
    difference = Difference()
    for name in sorted({*first, *second}):
        if name in first and name in second:
            difference.add_trace(first[name], second[name])
        else:
            lacks = "second" if name in first else "first"
            difference.left_out.append(f"{name}: not measured on the {lacks}")
    return difference
