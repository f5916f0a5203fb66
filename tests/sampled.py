"""The values that the gate measures again: of short runs of many experiments, with every kind.

Read off the reference machine's traces, and the same on every machine. Left out are times, which a
rerun tells only beside a control, and what other work on the machine can turn: bytes of ranks that
communicate, because gloo's threads free a buffer late where that work has the cores.
"""

import re

from proofbook.runners.commands.show import lines
from proofbook.runners.core.declared.experiment import find
from proofbook.runners.core.trace.fields import quantity, steps_of
from proofbook.runners.core.trace.records import Trace
from proofbook.runners.core.trace.spread import field_of
from proofbook.runners.traces.files import read, trace_paths
from tests.processes import ROOT

REFERENCE = sorted(ROOT.glob("content/traces/reference-*"))[0]
SHORT_SECONDS = 6.0  # that a run may take; most take less than one
CHEAP_SECONDS = 1.0  # of all its ranks, that the shortest run of an experiment may take
# Of a run, what was measured; the rest was set, or names what was.
MEASURED = ("epochs", "step_losses", "validation", "prediction", "ranks", "stages")
NAMES = ("rank", "epoch", "step", "source", "destination")
OWN = r"(measures|facts|phases)\..+"  # an experiment may have named the last step


def short_runs() -> list[tuple[Trace, str]]:
    """The runs that take less than `SHORT_SECONDS` and can be measured anywhere, shortest first."""
    found = []
    for trace in map(read, trace_paths(REFERENCE)):
        declarations = find(trace.experiment).runs
        for name, run in trace.runs.items():
            can_run = run.nature == "real" and not declarations[name].own_network
            if run.status == "completed" and can_run and run.timing.wall_seconds <= SHORT_SECONDS:
                found.append((trace, name))
    return sorted(found, key=lambda one: one[0].runs[one[1]].timing.wall_seconds)


def paths(trace: Trace, name: str) -> dict[str, str]:
    """By field of a run, the path of the last value that a rerun must reproduce."""
    run, found = trace.runs[name], dict[str, str]()
    for line in lines(trace, name):
        path, _, value = line.removeprefix("{{ ").partition(" }}  ")
        steps = steps_of(path)[2:] if "|" not in path else ["settings"]
        is_number = re.fullmatch(r'-?\d[\d.e+-]*|"[0-9a-f]{12}"', value) and steps[-1] not in NAMES
        is_steady = quantity(steps, run.quantities).repeats not in ("clock", "kernel")
        if run.world_size > 1 and ("memory" in steps or "peak" in str(steps[-1])):
            continue
        if steps[0] in MEASURED and is_number and is_steady:
            found[field_of(run, steps)] = path
    return found


def _cost(one: tuple[Trace, str]) -> float:
    run = one[0].runs[one[1]]
    return run.timing.wall_seconds * run.world_size


def sample() -> list[str]:
    """Of the shortest run of each experiment, and of others that add one, each kind of value once.

    Of a run that adds none, one value. An experiment without a cheap run is left to `make soak`,
    unless it adds a kind.
    """
    found: list[str] = []
    known: set[tuple[bool, str]] = set()
    runs = sorted(short_runs(), key=_cost)
    cheap = [one for one in runs if _cost(one) <= CHEAP_SECONDS]
    first = {trace.experiment: (trace, name) for trace, name in reversed(cheap)}
    for trace, name in (*first.values(), *runs):
        is_shared = trace.runs[name].world_size > 1
        fields = paths(trace, name).items()
        kinds = {(is_shared, re.sub(OWN, r"\1", field)): path for field, path in fields}
        new = [path for kind, path in kinds.items() if kind not in known]
        is_first = first.get(trace.experiment) == (trace, name)
        found += new if new or not is_first else [*kinds.values()][:1]
        known |= kinds.keys()
    return found
