"""`python -m runners list`: all experiments, their runs, and what of them is measured here.

In: the names of experiments. Out: lines. Where a fresh trace holds what an experiment is, its file
is not loaded, and of the trace only what is printed is looked at.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from runners.measuring.pending import other_code, part_of, pending
from runners.plans.experiment import check_names, find
from runners.traces import machine
from runners.traces.digest import program_digests
from runners.traces.records import Circumstances, Code
from runners.traces.skips import is_heavier
from runners.traces.values import edited, faults


class Listed(NamedTuple):
    """What is printed of an experiment."""

    question: str
    runs: Collection[str]
    state: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments; all without one")


def main(arguments: argparse.Namespace) -> int:
    """List experiments; 1 where a trace of the reference machine was edited."""
    where = machine.TRACES / machine.name()
    for name in check_names(arguments.names):
        one = _measured(name, where) or _declared(name, where)
        print(f"{name:<18} {len(one.runs):>3} runs  {one.state}")
        print(f"    {one.question}\n    {', '.join(one.runs)}")
    none = "none yet; `python -m runners run` measures them"
    print(f"traces of this machine: {machine.shown(where) if where.exists() else none}")
    altered = [
        f"{machine.shown(folder / file)}: {why}\n"
        for folder in sorted(machine.TRACES.glob("reference-*"))
        for file, why in faults(folder)
    ]
    sys.stderr.writelines(altered)
    return 1 if altered else 0


def _measured(name: str, where: Path) -> Listed | None:
    """From a trace that is as it was recorded, by this code and torch; None where there is none."""
    path = where / f"{name}.json"
    if part_of(name, where).exists() or not path.exists() or edited(path):
        return None
    try:
        document = json.loads(path.read_bytes())
        code, runs = Code(**document["code"]), document["runs"]
        changed = other_code(name, code, Circumstances(**document["circumstances"]))
        question = str(document["question"])
    except (ValueError, KeyError, TypeError):
        return None
    if changed or code.programs != program_digests(name):
        return None
    heavier = [run for run in runs.values() if is_heavier(run.get("reason") or "")]
    left = f" but for {len(heavier)} heavier runs" if heavier else ""
    return Listed(question, runs, f"measured on this machine{left}")


def _declared(name: str, where: Path) -> Listed:
    experiment = find(name)
    one = pending(name, where, loaded=experiment)
    state = one.reason if one else "missing"
    is_heavy = all(plan.full for plan in experiment.runs.values())
    heavier = "; only with --full" if is_heavy else ""
    return Listed(experiment.question, experiment.runs, f"{state}{heavier}")
