"""`python -m runners simulate`: every run as one rank of many, beside what real ranks recorded.

In: names of runs. Out: a line a run, or JSON; then the score of all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from runners.simulate.compare import Compared, compare, score
from runners.simulate.suite import CACHE, cores, failures, simulate, wanted
from runners.traces import machine


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
