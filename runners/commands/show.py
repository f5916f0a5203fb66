"""`python -m runners show`: every value of a trace as an expression to paste. No torch.

    python -m runners show NAME             a line for each run
    python -m runners show NAME.RUN         every value of a run, with what an author pastes
    python -m runners show | grep peak      of every value, those that a word picks

In: this machine's traces, as far as it has them, else the reference machine's. Exit code 2 for a
wrong call.
"""

import argparse
import json
import sys
from collections.abc import Iterator

from proofbook.runners.core.declared.experiment import check_name
from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.fields import DECLARED
from proofbook.runners.core.trace.records import Run, Trace, software
from proofbook.runners.system.book import own_book, program
from proofbook.runners.system.errors import unknown
from proofbook.runners.traces.files import read, trace_paths
from proofbook.runners.traces.summary import bytes_in_words, seconds_in_words

_NAMED = ("name", "operation")  # fields by whose value a list of records is indexed
_SHAPES = ("weight_shape", "shape_in", "shape_out")
_LONGEST_LIST = 8
_OF_RANKS = ("backend", "device", "passes", "ranks", "world_size")


def lines(trace: Trace, run: str = "") -> Iterator[str]:
    """Yield a line for each value of a run, or of all: the expression, and the value as JSON."""
    for name in [run] if run else trace.runs:
        for path, value in _walk(f"{trace.experiment}.{name}", trace.runs[name].as_json()):
            if trace.runs[name].is_plain:  # without what only ranks have
                path = path.replace(".ranks[0].measures", ".measures")  # noqa: PLW2901
                if path.split(".")[2].partition("[")[0] in _OF_RANKS:
                    continue
            yield f"{{{{ {path} }}}}  {json.dumps(value)}"


def overview(trace: Trace) -> Iterator[str]:
    """Yield an experiment's head, a line for each run, and how to see more."""
    yield f"{trace.experiment}: {trace.question}"
    yield f"on {trace.machine}, {trace.recorded_at}, {software(trace.circumstances)}"
    width = max(map(len, trace.runs))
    for name, run in trace.runs.items():
        yield f"  {name:{width}}  {', '.join(_facts(run))}"
    example = next(iter(trace.runs))
    yield f"Every value of a run: {program()} show {trace.experiment}.{example}"
    yield f"Values by a word:     {program()} show | grep {'measures' if own_book() else 'peak'}"


def _facts(run: Run) -> Iterator[str]:
    if not run.is_plain:
        yield f"{run.world_size} rank{'s' if run.world_size > 1 else ''}"
    yield run.status
    if run.timing.step is not None:
        yield f"{seconds_in_words(run.timing.step.median_seconds)} a step"
    if peak := max((rank.memory.peak_bytes or 0 for rank in run.ranks if rank.memory), default=0):
        yield f"peak {bytes_in_words(peak)}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options and arguments to its parser."""
    parser.add_argument("name", metavar="NAME[.RUN]", nargs="?", default="", help="by default all")


def main(arguments: argparse.Namespace) -> int:
    """Print the runs of an experiment, the values of a run, or all values."""
    for line in _lines_of(*arguments.name.partition(".")[::2]):
        sys.stdout.write(f"{line}\n")
    return 0


def _lines_of(experiment: str, run: str) -> Iterator[str]:
    note = machine.THIS_MACHINE  # of the folder that this machine measured into last
    folders = [machine.TRACES / note.read_text(encoding="utf-8").strip()] if note.is_file() else []
    references = machine.references()  # of ours, where a book of one's own has none
    folders += [path for path in references if not own_book() or path.parent == machine.TRACES]
    known = {path.stem: path for folder in reversed(folders) for path in trace_paths(folder)}
    if experiment:
        check_name(experiment)
    for name in [experiment] if experiment else sorted(known):
        trace = read(known.get(name, machine.TRACES / f"{name}.json"))
        if run and run not in trace.runs:
            raise unknown(f"run of {name}", run, trace.runs)
        yield from overview(trace) if experiment and not run else lines(trace, run)


def _walk(path: str, node: object) -> Iterator[tuple[str, object]]:
    if isinstance(node, dict):
        for key, value in ((key, node[key]) for key in node if key not in DECLARED):
            step = f".{key}" if key.isidentifier() else f"[{key!r}]"
            yield from _walk(f"{path}{step}", value)
    elif isinstance(node, list) and node and path.endswith(_SHAPES):
        yield f"{path}|shape", node
    elif isinstance(node, list) and len(node) > _LONGEST_LIST and not isinstance(node[0], dict):
        yield f"{path}|count", len(node)
    elif isinstance(node, list):
        names = [_name_of(element) for element in node]
        for index, (name, element) in enumerate(zip(names, node, strict=True)):
            is_unique = name and names.count(name) == 1
            yield from _walk(f"{path}[{name!r}]" if is_unique else f"{path}[{index}]", element)
    elif node is not None:
        yield path, node


def _name_of(element: object) -> str | None:
    record = element if isinstance(element, dict) else {}
    return next((record[name] for name in _NAMED if record.get(name)), None)
