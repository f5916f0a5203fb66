"""`python -m runners compare A B`: what two machines' traces say differently, beyond their spread.

In: the traces of two folders. Out: lines, of which those that matter come first. Two runs that read
another text, such as the sources of another Python, differ in all that follows from it: the text is
named as the cause. Outcomes and everything else that a rerun must reproduce should be equal; each
field where they are not is listed with how far apart it is, the largest difference first. What the
kernel counts, and what another processor or torch rounds, may differ and is summed up. Two times
differ where their quartile ranges do not overlap. What the generator's claims say of it, `python -m
generator compare A B` tells: laws should hold on both, observations need not. No torch; pure.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from runners.traces.fields import is_of_kernel, is_of_time
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
FLOAT_SHARE = 0.01  # rounding in another order, carried through a short training
ROUNDED_OFF = 1e-6  # below it lies what fp32 rounds off: differences from zero, not values
TEXT = "text_digest"  # a measure: which text a run was trained on
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
        from_texts: fields of runs that were trained on another text.
        unequal: fields that a rerun must reproduce, and that differ.
        counted: fields that the kernel counted, and that differ by more than its share.
        rounded: fields within what another processor or torch rounds, and digests of such.
        times: whose quartile ranges lie apart, a line each.
        left_out: what cannot be compared, and why, a line each.
        num_equal: outcomes and fields that stayed.
        num_overlapping: times that stayed within each other's spread.
        num_too_few: times that have too few samples for a spread.
    """

    circumstances: list[str] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    from_texts: list[Apart] = field(default_factory=list)
    unequal: list[Apart] = field(default_factory=list)
    counted: list[Apart] = field(default_factory=list)
    rounded: list[Apart] = field(default_factory=list)
    times: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    num_equal: int = 0
    num_overlapping: int = 0
    num_too_few: int = 0

    @property
    def is_none(self) -> bool:
        """Whether nothing differs that should be equal."""
        return not (self.outcomes or self.from_texts or self.unequal or self.times)

    def lines(self) -> list[str]:
        """The whole as a person reads it."""
        parts = (
            ("measured under other circumstances", self.circumstances),
            ("trained on another text, from which the rest follows", _by_run(self.from_texts)),
            ("ended otherwise", self.outcomes),
            ("should be equal, and is not", [one.line() for one in largest_first(self.unequal)]),
            ("may differ from machine to machine", [
                *_summed_up("counted by the kernel", self.counted),
                *_summed_up("rounded otherwise", self.rounded),
            ]),
            ("took another time, beyond its spread", self.times),
            ("not compared", self.left_out),
        )  # fmt: skip
        said = [line for head, rows in parts if rows for line in (f"{head}:", *_indented(rows))]
        stayed = (
            f"stayed: {self.num_equal} outcomes and fields are equal, "
            f"{self.num_overlapping} times within their spread; "
            f"{self.num_too_few} times have too few samples to tell"
        )
        return [*said, stayed]


def largest_first(fields: Iterable[Apart]) -> list[Apart]:
    """Fields by how far apart they are; words first."""
    return sorted(fields, key=lambda one: (-one.share, one.path))


def _by_run(fields: Iterable[Apart]) -> list[str]:
    """What follows from other texts: the size of the texts, then a line for each run."""
    runs: dict[str, list[Apart]] = defaultdict(list)
    texts: dict[str, Apart] = {}
    for one in largest_first(fields):
        run, _, name = one.path.partition(".ranks[].measures.")
        if name.endswith("text_bytes"):
            texts.setdefault(f"{run.partition('.')[0]}.{name}", one)
        runs[".".join(one.path.split(".")[:2])].append(one)
    return [
        *(f"{name}: {one.share:.2g} of the larger" for name, one in texts.items()),
        *(line for run, found in runs.items() for line in _summed_up(run, found)),
    ]


def _summed_up(what: str, fields: Iterable[Apart]) -> list[str]:
    found = [one for one in largest_first(fields) if math.isfinite(one.share)]
    if not found:
        return []
    most, num = found[0], len(found)
    return [f"{what}: {num} field{'s' if num > 1 else ''}, most of all {most.line()}"]


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
        _compare_circumstances(first[name], second[name], found)
        if first[name].code.digest != second[name].code.digest:
            found.left_out.append(f"{name}: measured by other code")
            continue
        _compare_runs(name, first[name], second[name], found)
    return found


def _compare_circumstances(first: Trace, second: Trace, found: Difference) -> None:
    one, other = (trace.circumstances.model_dump() for trace in (first, second))
    for name in one:
        line = f"{name.replace('_', ' ')}: {one[name]} | {other[name]}"
        if one[name] != other[name] and line not in found.circumstances:
            found.circumstances.append(line)


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
    for rows in (found.outcomes, found.times, found.left_out):
        rows.sort()


def _program(trace: Trace, run: Run) -> str | None:
    """The digest of the program that a run executed."""
    return trace.code.programs.get(str(run.settings.get("program")))


def _compare_fields(path: str, one: Run, other: Run, found: Difference) -> None:
    """Note each field that differs, by what that means."""
    left, right = dict(_leaves(one)), dict(_leaves(other))
    reads_another_text = any(
        name.endswith(f".{TEXT}") and left.get(name) != right.get(name) for name in left
    )
    apart: dict[str, list[tuple[object, object]]] = defaultdict(list)
    for name in left.keys() | right.keys():
        if is_of_time(_POSITION.sub("", name).split(".")):
            continue  # one measurement of it has no spread
        a, b = left.get(name), right.get(name)
        if a == b or (is_of_kernel(name) and _share(a, b) <= KERNEL_SHARE):
            found.num_equal += 1
        else:
            apart[_POSITION.sub("[]", name)].append((a, b))
    for name, pairs in apart.items():
        if is_of_kernel(name):
            kind = found.counted
        elif reads_another_text:
            kind = found.from_texts
        elif all(_is_rounded(name, *pair) for pair in pairs):
            kind = found.rounded
        else:
            kind = found.unequal
        kind.append(_apart(f"{path}.{name}", name, pairs))


def _apart(path: str, name: str, pairs: list[tuple[object, object]]) -> Apart:
    share = max(_share(*pair) for pair in pairs)
    if math.isfinite(share):
        return Apart(share, path, len(pairs))
    a, b = next(pair for pair in pairs if not math.isfinite(_share(*pair)))
    words = f"{str(a)[:LONGEST]!r} | {str(b)[:LONGEST]!r}"
    return Apart(0.0 if name.endswith("parameter_digest") else math.inf, path, len(pairs), words)


def _is_rounded(name: str, one: object, other: object) -> bool:
    """Whether two values may be the same but for rounding; a digest tells every bit."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= max(FLOAT_SHARE * max(abs(one), abs(other)), ROUNDED_OFF)
    return name.endswith("parameter_digest")


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


def overlap(one: SampledSeconds, other: SampledSeconds) -> bool:
    """Whether the quartile ranges of two times have anything in common."""
    return (
        one.first_quartile_seconds <= other.third_quartile_seconds
        and other.first_quartile_seconds <= one.third_quartile_seconds
    )
