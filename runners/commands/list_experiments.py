"""`python -m runners list`: all experiments, their runs, and which are measured here.

In: the names of experiments. Out: lines.
"""

import argparse
from pathlib import Path

from proofbook.runners.core.declared.experiment import Experiment, check_names, find
from proofbook.runners.core.trace import machine
from proofbook.runners.plain.measure import is_reference
from proofbook.runners.session.pending import existing, pending
from proofbook.runners.system.book import program
from proofbook.runners.system.errors import FixableError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options and arguments to its parser."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments; all without one")


def main(arguments: argparse.Namespace) -> int:
    """Print experiments, runs and state here; returns 2 where any file is broken, else 0."""
    where = machine.TRACES / machine.name(as_reference=is_reference())
    exit_code = 0
    for name in check_names(arguments.names):
        try:
            experiment = find(name)
        except FixableError as error:  # of this file alone
            print(f"{name:<18} cannot be loaded", f"    {error}", sep="\n")
            exit_code = FixableError.exit_code
            continue
        print(f"{name:<18} {len(experiment.runs):>3} runs  {_state(experiment, where)}")
        print(f"    {experiment.question}\n    {', '.join(experiment.runs)}")
    none = f"none yet; `{program()} run` measures them"
    print(f"traces of this machine: {machine.from_home(where) if where.exists() else none}")
    return exit_code


def _state(experiment: Experiment, where: Path) -> str:
    """Whether an experiment is measured here, or why it must be measured."""
    waiting = pending(experiment.name, where, loaded=experiment)
    trace, _ = existing(where / f"{experiment.name}.json")
    if waiting is None and trace is not None:
        heavier = len(trace.left_out)
        return f"measured on this machine{f' but for {heavier} heavier runs' if heavier else ''}"
    reason = waiting.reason if waiting else "missing"
    return f"{reason}{'; only when named, or with --full' if experiment.is_full else ''}"
