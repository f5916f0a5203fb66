"""`python -m runners simulate`: every run as one rank of many, beside what real ranks recorded.

In: names of runs. Out: a line a run, or JSON; then the score of all.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from runners.simulate.compare import Compared, compare, score
from runners.simulate.suite import CACHE, cores, failures, simulate, wanted
from runners.traces import machine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "names", nargs="*", metavar="EXPERIMENT[.RUN]", help="what to simulate; all without one"
    )
    parser.add_argument("--json", action="store_true", help="every value, as JSON")


def main(arguments: argparse.Namespace) -> int:
    """Simulate runs; 1 where a simulation failed."""
    found, failed = simulated(arguments.names, as_json=arguments.json)
    print("\n".join(found), flush=True)
    for line in failed:
        print(f"failed: {line}", file=sys.stderr)
    return 1 if failed else 0


def simulated(names: Iterable[str], *, as_json: bool) -> tuple[list[str], list[str]]:
    """Simulate runs: the lines that tell what came of them, and one for each that failed.

    Where there is an accelerator, as if each rank had one, beside what this machine recorded.

    Raises:
        UnknownExperimentError, UnknownRunError: a name means nothing.
    """
    device = machine.device_kind()
    folder = machine.TRACES / machine.name() if device == "cuda" else reference()
    found = simulate(wanted(names, device), _cache(device), cores())
    compared = compare(found.runs, folder)
    failed = failures(found.runs)
    if as_json:
        return [json.dumps([one.as_json() for one in compared], indent=1)], failed
    known = len(compared) - found.num_new
    last = f"{score(compared).line()}; {known} known before"
    return [*map(_line, compared), last], failed


def _cache(device: str) -> Path:
    return CACHE if device == "cpu" else CACHE / device


def reference() -> Path:
    """The folder of the reference machine's traces, with which simulations are compared."""
    return sorted(machine.TRACES.glob("reference-*"))[0]


def _line(one: Compared) -> str:
    head = f"{one.name:<44}{one.num_ranks:>5}"
    if one.reason is not None:
        return f"{head}  not simulated: {one.reason}"
    peak = f"{_mebibytes(one.peak_bytes)}{_beside(one.recorded_peak_bytes, one.peak_error)}"
    payload = _mebibytes(one.payload_bytes)
    return f"{head}  peak {peak}  payload {payload}" + _beside(
        one.recorded_payload_bytes, one.payload_error
    )


def _mebibytes(num_bytes: int | None) -> str:
    return f"{(num_bytes or 0) / 2**20:10.3f} MiB"


def _beside(recorded: int | None, error: float | None) -> str:
    if recorded is None:
        return " (not metered)"
    return f" (recorded {_mebibytes(recorded).strip()}, {error or 0.0:+.2%})"
