"""Every value of a trace as a path an author pastes between braces. No torch, so it is quick.

    python -m runners show NAME             what all runs share, and a line for each run
    python -m runners show NAME.RUN         every value of a run, with what an author pastes
    python -m runners show --grep WORD [NAME]   the values whose expression holds a word

In: this machine's traces, as far as it has them, else the reference machine's. Exit code 2 for a
wrong call.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from runners.plans.experiment import UnknownExperimentError, check_name, nearest
from runners.system.errors import FixableError
from runners.traces import machine
from runners.traces.files import TraceError, read, trace_paths
from runners.traces.records import Run, Trace
from runners.traces.values import edited

_NAMED = ("name", "operation")  # a list of things with a name is indexed by it
_SHAPES = ("weight_shape", "shape_in", "shape_out")
_LONGEST_LIST = 8


def lines(trace: Trace, run: str | None = None) -> Iterator[str]:
    """One line a value, of one run or of all: the expression, and what the trace holds."""
    for run_name, found in trace.runs.items():
        if run in (None, run_name):
            prefix = f"{trace.experiment}.{run_name}"
            for path, value in _walk(prefix, found.as_json()):
                yield f"{{{{ {path} }}}}  {json.dumps(value)}"


def overview(trace: Trace) -> Iterator[str]:
    """What all runs share, a line for each run, and how to see more."""
    yield f"{trace.experiment}: {trace.question}"
    yield f"on {trace.machine}, {trace.recorded_at}, torch {trace.circumstances.torch}"
    settings = [run.settings for run in trace.runs.values()]
    shared = {
        name: value
        for name, value in (settings[0] if settings else {}).items()
        if all(name in one and one[name] == value for one in settings)
    }
    if len(settings) > 1 and shared:
        yield f"all runs: {_set(shared)}"
    width = max(map(len, trace.runs), default=0)
    for name, run in trace.runs.items():
        own = {key: value for key, value in run.settings.items() if key not in shared}
        told = [f"{run.world_size} rank{'s' if run.world_size > 1 else ''}", run.status]
        if (step := run.timing.step) is not None:
            told.append(f"{step.median_seconds * 1e3:.4g} ms a step")
        if (peak := _peak(run)) is not None:
            told.append(f"peak {peak / 2**20:,.4g} MiB")
        yield f"  {name:{width}}  {', '.join(told)}{f'; {_set(own)}' if own else ''}"
    example = next(iter(trace.runs), "RUN")
    yield f"Every value of a run: python -m runners show {trace.experiment}.{example}"
    yield f"Values by a word:     python -m runners show --grep peak {trace.experiment}"


def _set(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def _peak(run: Run) -> int | None:
    peaks = [one.memory.peak_bytes for one in run.ranks if one.memory]
    return max((peak for peak in peaks if peak is not None), default=None)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("name", metavar="NAME[.RUN]", nargs="?", help="all experiments by default")
    parser.add_argument("--grep", metavar="WORD", help="only values whose expression holds this")


def main(arguments: argparse.Namespace) -> int:
    """Print an experiment, a run, or the values that a word picks."""
    if not arguments.name and not arguments.grep:
        raise FixableError("name an experiment, or give a word: show --grep WORD")
    for line in _shown(arguments.name, arguments.grep):
        sys.stdout.write(f"{line}\n")
    return 0


def _shown(name: str | None, word: str | None) -> Iterator[str]:
    experiment, _, run = (name or "").partition(".")
    if word is None:
        trace = _trace(experiment, run)
        yield from lines(trace, run) if run else overview(trace)
        return
    for path in [_path(experiment)] if experiment else _paths():
        trace = _trace(path.stem, run)
        for line in lines(trace, run or None):
            if word.lower() in line.partition(" }}")[0].lower():
                yield line


def _trace(experiment: str, run: str) -> Trace:
    path = _path(experiment)
    trace = read(path)
    if problem := edited(path):
        raise TraceError(f"{path}: {problem}")
    if run and run not in trace.runs:
        known = ", ".join(trace.runs)
        name, _, field = run.partition(".")
        if name in trace.runs:
            raise UnknownExperimentError(
                f"{experiment}.{run} names a field of the run {name!r}; its values: "
                f"python -m runners show --grep {field} {experiment}.{name}"
            )
        hint = nearest(name, trace.runs)
        raise UnknownExperimentError(f"{experiment} has no run {name!r}{hint}; there are: {known}")
    return trace


def _path(experiment: str) -> Path:
    """The trace of an experiment.

    Raises:
        UnknownExperimentError: there is no such experiment.
    """
    check_name(experiment)
    places = [folder / f"{experiment}.json" for folder in _folders()]
    return next((path for path in places if path.is_file()), places[0])


def _paths() -> list[Path]:
    found: dict[str, Path] = {}
    for folder in _folders():
        for path in trace_paths(folder):
            found.setdefault(path.name, path)
    return [found[name] for name in sorted(found)]


def _folders() -> list[Path]:
    """The folder that this machine measured into last, then the reference machine's."""
    note = machine.TRACES / "this-machine"
    own = [machine.TRACES / note.read_text(encoding="utf-8").strip()] if note.is_file() else []
    return [*own, *sorted(machine.TRACES.glob("reference-*"))] or [machine.TRACES]


def _walk(path: str, node: object) -> Iterator[tuple[str, object]]:
    if isinstance(node, dict):
        for key, value in node.items():
            step = f".{key}" if key.isidentifier() else f"[{key!r}]"
            yield from _walk(f"{path}{step}", value)
    elif isinstance(node, list) and any(isinstance(item, dict) for item in node):
        for index, item in enumerate(node):
            name = next((item[n] for n in _NAMED if item.get(n)), None)
            unique = name and sum(1 for other in node if name in other.values()) == 1
            yield from _walk(f"{path}[{name!r}]" if unique else f"{path}[{index}]", item)
    elif isinstance(node, list) and node:
        yield from _list(path, node)
    elif node is not None and node != [] and node != {}:
        yield path, node


def _list(path: str, node: list[object]) -> Iterator[tuple[str, object]]:
    """A list of numbers or words: as a shape, element by element, or only how long it is."""
    if path.endswith(_SHAPES):
        yield f"{path}|shape", node
    elif len(node) > _LONGEST_LIST:
        yield f"{path}|count", len(node)
    else:
        for index, item in enumerate(node):
            yield from _walk(f"{path}[{index}]", item)
