"""Runs of experiments, each simulated rank by rank. No torch here.

In: names of runs. Out: a `SimulatedRun` each. Runs that differ only in what no simulation follows
from are simulated once.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runners.plans.experiment import RunPlan, find, names, on_device
from runners.simulate.log import SimulatedRun
from runners.simulate.processes import Job, results, torch_release
from runners.system.errors import FixableError
from runners.traces.digest import program_digests, source_digest
from runners.traces.plan_grid import engine_digest

NUM_WORKERS = 2
# Ends that ranks come to because of each other, and what they then do.
TAKE_OTHERS = {"deadlocked": "hang", "died": "die", "failed": "fail"}
_SPEED = "_per_second"  # settings of a link, which nothing passes
_FOLLOWS_FROM = ("strategy", "world_size", "seed", "needs_group", "own_network", "nature")
_ENTRY = "runners.simulate.one_rank"


class UnknownRunError(FixableError):
    """An experiment has no run of that name."""


@dataclass(frozen=True)
class Wanted:
    """One run to simulate, as it is declared or changed, on `cpu` or `cuda`."""

    experiment: str
    run: str
    plan: RunPlan
    device: str = "cpu"

    @property
    def key(self) -> str:
        """A digest of code, torch and what of a plan a simulation follows from.

        Budgets, passes, and the speed of a link are not among it.
        """
        declared = self.plan.as_json()
        settings = {k: v for k, v in declared["settings"].items() if not k.endswith(_SPEED)}
        follows = {name: declared[name] for name in _FOLLOWS_FROM} | {"settings": settings}
        program = str(declared["settings"].get("program"))
        parts = [
            engine_digest(_ENTRY),
            torch_release(),
            source_digest(self.experiment),
            program_digests(self.experiment).get(program, ""),
            json.dumps(follows, sort_keys=True),
            self.plan.expected if self.plan.expected in TAKE_OTHERS else "",
            self.device,
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]

    def as_json(self) -> dict[str, Any]:
        """What a process needs to know of it."""
        return {**vars(self), "plan": self.plan.as_json()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Wanted:
        """A run from what `as_json` made of it."""
        declared = document["plan"]
        experiment = find(document["experiment"])
        kind = experiment.settings_of(declared["strategy"], declared["settings"])
        return cls(**{**document, "plan": RunPlan.from_json(declared, kind)})

    def failed(self, reason: str) -> SimulatedRun:
        """The result where the process of the simulation ended by itself."""
        return SimulatedRun(
            experiment=self.experiment, run=self.run, reason=reason, has_failed=True, seconds=0
        )


@dataclass(frozen=True)
class Simulated:
    """Results in the order asked for, and how many of them were simulated now."""

    runs: list[SimulatedRun]
    num_new: int


def wanted(names_given: Iterable[str], device: str = "cpu") -> list[Wanted]:
    """The runs that are named: `EXPERIMENT` or `EXPERIMENT.RUN`; all without a name.

    Args:
        names_given: of experiments and runs.
        device: `cpu` or `cuda`, on which experiments may grow.

    Raises:
        UnknownExperimentError: there is no such experiment.
        UnknownRunError: it has no such run.
    """
    found = []
    for given in list(names_given) or names():
        name, _, run = given.partition(".")
        experiment = on_device(find(name), device)
        if run and run not in experiment.runs:
            raise UnknownRunError(
                f"{name} has no run {run!r}; it has: {', '.join(experiment.runs)}"
            )
        chosen = [run] if run else list(experiment.runs)
        found += [Wanted(name, one, experiment.runs[one], device) for one in chosen]
    return found


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
