"""`python -m runners machine`: what this machine is, and whether it was quiet when it measured."""

from __future__ import annotations

import argparse
import json
import sys

from runners.traces import machine
from runners.traces.compare import traces_in
from runners.traces.quiet_record import quietness


def add_arguments(_: argparse.ArgumentParser) -> None:
    """The command takes nothing."""


def main(_: argparse.Namespace) -> int:
    """Print `machine.json` of this machine."""
    print(json.dumps(machine.describe().as_json(), indent=1, sort_keys=True))
    name = machine.name()
    if (machine.TRACES / name / "machine.json").is_file():
        print(quiet_line(name), file=sys.stderr)
    return 0


def quiet_line(name: str) -> str:
    """Whether a machine measured its experiments while it was quiet."""
    traces = traces_in(machine.TRACES / name, machine.TRACES)
    return quietness({one: trace.quiet for one, trace in traces.items()}).line()
