"""Runs of experiments, each simulated rank by rank. No torch here.

In: which runs. Out: a `SimulatedRun` each. Runs that differ only in what no simulation follows from
are simulated once.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runners.simulate.log import SimulatedRun
from runners.simulate.processes import Job, results
from runners.simulate.wanted import Wanted

NUM_WORKERS = 2


@dataclass(frozen=True)
class Simulated:
    """Results in the order asked for, and how many of them were simulated now."""

    runs: list[SimulatedRun]
    num_new: int


def simulate(
    runs: Iterable[Wanted], folder: Path | None = None, num_workers: int = NUM_WORKERS
) -> Simulated:
    """Simulate runs that are not known yet; `results` says how they are kept."""
    wanted_runs = list(runs)
    jobs = [Job(one.key, _simulated, one.as_json(), one.failed) for one in wanted_runs]
    found, num_new = results(jobs, SimulatedRun, num_workers, folder, "runs simulated")
    named = [
        run.model_copy(update={"experiment": one.experiment, "run": one.run})
        for one, run in zip(wanted_runs, found, strict=True)
    ]
    return Simulated(named, num_new)


def _simulated(document: Mapping[str, Any]) -> SimulatedRun:
    from runners.simulate.rank_processes import simulate_run

    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # unwinding ends the process of a rank
    return simulate_run(Wanted.from_json(document))
