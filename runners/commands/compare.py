"""`python -m runners compare`: what two machines measured otherwise. In: their folders."""

from __future__ import annotations

import argparse

from runners.traces import machine
from runners.traces.compare import compare, traces_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("names", nargs=2, metavar="MACHINE", help="a folder's name")


def main(arguments: argparse.Namespace) -> int:
    """Say what was measured otherwise; 1 where anything was."""
    found = compare(*(traces_of(machine.folder_of(name)) for name in arguments.names))
    print("\n".join([" | ".join(arguments.names), *found.lines()]))
    return 0 if found.is_none else 1
