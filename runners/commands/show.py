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
from runners.traces.summary import bytes_in_words, seconds_in_words
from runners.traces.values import edited

_NAMED = ("name", "operation")  # a list of things with a name is indexed by it
_SHAPES = ("weight_shape", "shape_in", "shape_out")
_LONGEST_LIST = 8


def lines(trace: Trace, run: str = "", word: str = "") -> Iterator[str]:
    """One line a value, of one run or of all: the expression, and what the trace holds.

    Args:
        trace: of an experiment.
        run: its name; all runs where empty.
        word: what the expression holds.
    """
    for name in [run] if run else trace.runs:
        for path, value in _walk(f"{trace.experiment}.{name}", trace.runs[name].as_json()):
            if word.lower() in path.lower():
                yield f"{{{{ {path} }}}}  {json.dumps(value)}"


def overview(trace: Trace) -> Iterator[str]:
    """What all runs share, a line for each run, and how to see more."""
    yield f"{trace.experiment}: {trace.question}"
    yield f"on {trace.machine}, {trace.recorded_at}, torch {trace.circumstances.torch}"
    first, *others = (run.settings for run in trace.runs.values())
    shared = {
        name: value
        for name, value in first.items()
        if others and all(name in one and one[name] == value for one in others)
    }
    if shared:
        yield f"all runs: {_set(shared)}"
    width = max(map(len, trace.runs))
    for name, run in trace.runs.items():
        own = {key: value for key, value in run.settings.items() if key not in shared}
        settings = f"; {_set(own)}" if own else ""
        yield f"  {name:{width}}  {', '.join(_facts(run))}{settings}"
    example = next(iter(trace.runs))
    yield f"Every value of a run: python -m runners show {trace.experiment}.{example}"
    yield f"Values by a word:     python -m runners show --grep peak {trace.experiment}"


def _set(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def _facts(run: Run) -> Iterator[str]:
    yield f"{run.world_size} rank{'s' if run.world_size > 1 else ''}"
    yield run.status
    if (step := run.timing.step) is not None:
        yield f"{seconds_in_words(step.median_seconds)} a step"
    if peak := max((one.memory.peak_bytes or 0 for one in run.ranks if one.memory), default=0):
        yield f"peak {bytes_in_words(peak)}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("name", metavar="NAME[.RUN]", nargs="?", help="all experiments by default")
    parser.add_argument("--grep", metavar="WORD", help="only values whose expression holds this")


def main(arguments: argparse.Namespace) -> int:
    """Print an experiment, a run, or the values that a word picks."""
    if not arguments.name and not arguments.grep:
        raise FixableError("name an experiment, or give a word: show --grep WORD")
    for line in _shown(arguments.name or "", arguments.grep):
        sys.stdout.write(f"{line}\n")
    return 0


def _shown(name: str, word: str | None) -> Iterator[str]:
    experiment, _, run = name.partition(".")
    if word is None:
        trace = _trace(experiment, run)
        yield from lines(trace, run) if run else overview(trace)
        return
    known = {path.stem for folder in _folders() for path in trace_paths(folder)}
    for each in [experiment] if experiment else sorted(known):
        yield from lines(_trace(each, run), run, word)


def _trace(experiment: str, run: str) -> Trace:
    """The trace of an experiment.

    Raises:
        UnknownExperimentError: there is no such experiment, or no such run.
        TraceError: there is none, or it was edited.
    """
    check_name(experiment)
    places = [folder / f"{experiment}.json" for folder in _folders()]
    path = next((path for path in places if path.is_file()), places[0])
    trace = read(path)
    if problem := edited(path):
        raise TraceError(f"{path}: {problem}")
    name, _, field = run.partition(".")
    if run in trace.runs or not run:
        return trace
    if name in trace.runs:
        raise UnknownExperimentError(
            f"{experiment}.{run} names a field of the run {name!r}; its values: "
            f"python -m runners show --grep {field} {experiment}.{name}"
        )
    hint, known = nearest(name, trace.runs), ", ".join(trace.runs)
    raise UnknownExperimentError(f"{experiment} has no run {name!r}{hint}; there are: {known}")


def _folders() -> list[Path]:
    """The folder that this machine measured into last, then the reference machine's."""
    note = machine.THIS_MACHINE
    own = [machine.TRACES / note.read_text(encoding="utf-8").strip()] if note.is_file() else []
    return [*own, *machine.references()] or [machine.TRACES]


def _walk(path: str, node: object) -> Iterator[tuple[str, object]]:
    if isinstance(node, dict):
        for key, value in node.items():
            step = f".{key}" if key.isidentifier() else f"[{key!r}]"
            yield from _walk(f"{path}{step}", value)
    elif isinstance(node, list) and node and path.endswith(_SHAPES):
        yield f"{path}|shape", node
    elif isinstance(node, list) and len(node) > _LONGEST_LIST and not isinstance(node[0], dict):
        yield f"{path}|count", len(node)
    elif isinstance(node, list):
        names = [_name_of(item) for item in node]
        for index, (name, item) in enumerate(zip(names, node, strict=True)):
            is_unique = name and names.count(name) == 1
            yield from _walk(f"{path}[{name!r}]" if is_unique else f"{path}[{index}]", item)
    elif node is not None:
        yield path, node


def _name_of(item: object) -> str | None:
    record = item if isinstance(item, dict) else {}
    return next((record[name] for name in _NAMED if record.get(name)), None)
