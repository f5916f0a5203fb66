"""`python -m runners machine` and `compare`: what this machine is, and what two measured otherwise.

In: this machine, or the folders of two. Out: `machine.json`; or what the traces say differently.
"""

from __future__ import annotations

import argparse
import json

from runners.traces import machine
from runners.traces.compare import compare, traces_in


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes: two machines to compare, or nothing."""
    if parser.prog.endswith("compare"):
        parser.add_argument("names", nargs=2, metavar="MACHINE", help="a folder's name")


def main(arguments: argparse.Namespace) -> int:
    """Describe this machine, or compare two."""
    if names := getattr(arguments, "names", None):
        return _compared(names)
    print(json.dumps(machine.describe().as_json(), indent=1, sort_keys=True))
    return 0


def _compared(names: list[str]) -> int:
    """What was measured otherwise; 1 where anything was."""
    found = compare(*(traces_in(machine.TRACES / name, machine.TRACES) for name in names))
    print("\n".join([" | ".join(names), *found.lines()]))
    return 0 if found.is_none else 1
