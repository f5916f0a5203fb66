"""`python -m runners compare A B`: what two machines measured otherwise, and what claims say."""

from __future__ import annotations

import argparse
import subprocess
import sys

from runners.commands.describe_machine import quiet_line
from runners.traces import machine
from runners.traces.compare import compare, traces_in


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("first", metavar="A", help="a folder's name")
    parser.add_argument("second", metavar="B", help="another folder's name")


def main(arguments: argparse.Namespace) -> int:
    """What was measured otherwise; then the generator, which judges, says what that changes."""
    names = arguments.first, arguments.second
    found = compare(*(traces_in(machine.TRACES / name, machine.TRACES) for name in names))
    print(" | ".join(names))
    print("\n".join(found.lines()), flush=True)
    for name in names:
        print(f"{name}: {quiet_line(name)}", flush=True)
    judging = [sys.executable, "-m", "generator", "compare", *names]
    content = ["--content", str(machine.TRACES.parent)]
    return subprocess.run([*judging, *content], cwd=machine.ROOT, check=False).returncode
