"""The values that the gate measures again: of each experiment the shortest run, if it is short.

Read off the reference machine's traces, and the same on every machine. Left out are times, which a
rerun tells only beside a control, and what other work on the machine can turn: bytes of ranks that
communicate, because gloo's threads free a buffer late where that work has the cores.
"""

import re
from collections.abc import Iterator

from runners.commands.show import lines
from runners.plans.experiment import find
from runners.traces.fields import is_of_kernel, is_of_time, steps_of
from runners.traces.files import read, trace_paths
from runners.traces.records import Trace
from runners.traces.spread import field_of
from tests.processes import ROOT

REFERENCE = sorted(ROOT.glob("content/traces/reference-*"))[0]
SHORT_SECONDS = 1.5  # that a run may take
# Of a run, what was measured; the rest was set, or names what was.
MEASURED = ("epochs", "step_losses", "validation", "prediction", "ranks", "stages")
NAMES = ("rank", "epoch", "step", "source", "destination")


def short_runs(trace: Trace) -> list[str]:
    """The runs that take less than `SHORT_SECONDS` and can be measured anywhere, shortest first."""
    plans = find(trace.experiment).runs
    found = [
        (run.timing.wall_seconds, name)
        for name, run in trace.runs.items()
        if run.status == "completed" and run.nature == "real" and not plans[name].own_network
    ]
    return [name for seconds, name in sorted(found) if seconds <= SHORT_SECONDS]


def numbers(trace: Trace, name: str) -> Iterator[tuple[str, str]]:
    """The path of each value of a run that a rerun must reproduce, with its field."""
    run = trace.runs[name]
    for line in lines(trace, name):
        path, _, value = line.removeprefix("{{ ").partition(" }}  ")
        steps = steps_of(path)[2:] if "|" not in path else ["settings"]
        is_number = re.fullmatch(r'-?\d[\d.e+-]*|"[0-9a-f]{12}"', value) and steps[-1] not in NAMES
        is_steady = not (is_of_time(steps) or is_of_kernel(steps))
        if run.world_size > 1 and "memory" in steps:
            continue
        if steps[0] in MEASURED and is_number and is_steady:
            yield path, field_of(run, steps)


def sample() -> dict[str, list[str]]:
    """By experiment, the last value of each field of its shortest run."""
    traces = [read(path) for path in trace_paths(REFERENCE)]
    shortest = {trace.experiment: (trace, short_runs(trace)) for trace in traces}
    found = {
        name: sorted({field: path for path, field in numbers(trace, runs[0])}.values())
        for name, (trace, runs) in shortest.items()
        if runs
    }
    return {name: paths for name, paths in found.items() if paths}
