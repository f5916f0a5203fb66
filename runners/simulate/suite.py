"""Simulate runs in processes of their own, and remember what came of them. No torch here.

In: names of runs. Out: their `SimulatedSteps`. Each rank has a process to itself, which a worker
forks: what a strategy leaves in torch ends with it, and a crash or an endless loop costs that run
alone.
Results are kept under a digest of all code and settings that they follow from.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import platform
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor
from concurrent.futures import wait as first_of
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from runners.plans.experiment import Experiment, RunPlan, find, names, on_device
from runners.simulate.log import TAKE_OTHERS
from runners.simulate.step_log import SimulatedSteps
from runners.system import count, stopping
from runners.system.count import Count
from runners.system.errors import FixableError
from runners.traces.digest import file_digest, program_digests, source_digest
from runners.traces.files import write_json

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "simulations"
NUM_WORKERS = 2


class UnknownRunError(FixableError):
    """An experiment has no run of that name."""


@dataclass(frozen=True)
class Wanted:
    """One run to simulate, and the digest of what its simulation follows from."""

    experiment: str
    run: str
    key: str
    plan: RunPlan
    device: str = "cpu"

    @classmethod
    def of(cls, experiment: Experiment, run: str, plan: RunPlan, device: str = "cpu") -> Wanted:
        """A run as it is declared, or changed."""
        return cls(experiment.name, run, _key(experiment, plan, device), plan, device)

    def as_json(self) -> dict[str, Any]:
        """What a worker needs to know."""
        plan = self.plan.as_json()
        return {"experiment": self.experiment, "run": self.run, "plan": plan, "device": self.device}


@dataclass(frozen=True)
class Simulated:
    """Results in the order asked for, and how many of them were simulated now."""

    runs: list[SimulatedSteps]
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
        found += [Wanted.of(experiment, one, experiment.runs[one], device) for one in chosen]
    return found


def _key(experiment: Experiment, plan: RunPlan, device: str) -> str:
    """A digest of code, torch and what of a plan a simulation follows from.

    Budgets, passes, and the speed of a link are not among it: runs that differ in these alone are
    simulated once.
    """
    declared = plan.as_json()
    settings = {k: v for k, v in declared["settings"].items() if not k.endswith(_SPEED)}
    follows = {name: declared[name] for name in _FOLLOWS_FROM} | {"settings": settings}
    program = declared["settings"].get("program")
    parts = [
        _own_digest(),
        torch_release(),
        source_digest(experiment.name),
        program_digests(experiment.name).get(str(program), ""),
        json.dumps(follows, sort_keys=True),
        plan.expected if plan.expected in TAKE_OTHERS else "",
        *([device] if device != "cpu" else []),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


def torch_release() -> str:
    """The version of torch without the tag of its build: tensors have the same bytes in each."""
    return metadata.version("torch").partition("+")[0]


_SPEED = "_per_second"
_SIMULATES = (
    "fake_mode",
    "following",
    "log",
    "messages",
    "meter",
    "one_rank",
    "rank_processes",
    "reducer",
    "stand_ins",
    "step_log",
    "step_meter",
    "timeline",
)
_FOLLOWS_FROM = (
    "strategy",
    "world_size",
    "seed",
    "needs_group",
    "own_network",
    "nature",
)


@cache
def _own_digest() -> str:
    """Of the code that simulates, without comments."""
    found = (Path(__file__).with_name(f"{name}.py") for name in _SIMULATES)
    return hashlib.sha256("".join(map(file_digest, found)).encode()).hexdigest()


def simulate(
    runs: Iterable[Wanted],
    folder: Path = CACHE,
    num_workers: int = NUM_WORKERS,
) -> Simulated:
    """Simulate runs that are not known yet; one that fails is not kept.

    Args:
        runs: which, all of one kind of device.
        folder: where results are kept.
        num_workers: processes that simulate side by side.
    """
    asked = list(runs)
    kept = {name: _kept(folder, name) for name in {one.experiment for one in asked}}
    missing = {one.key: one for one in asked if one.key not in kept[one.experiment]}
    # Those that take longest first, so that no worker ends alone.
    order = sorted(missing.values(), key=_weight, reverse=True)
    new = {one.experiment: one.device for one in order}
    present = {name: {one.key for one in wanted([name], device)} for name, device in new.items()}
    for one, run in _simulated(order, num_workers):
        of_experiment = kept[one.experiment]
        of_experiment[one.key] = run
        if not run.has_failed:
            asked_now = {one.key, *present[one.experiment]}
            own = {k: v for k, v in of_experiment.items() if k in asked_now and not v.has_failed}
            _keep(folder, one.experiment, own)
    return Simulated([_named(one, kept[one.experiment][one.key]) for one in asked], len(order))


def _simulated(
    order: Sequence[Wanted], num_workers: int
) -> Iterator[tuple[Wanted, SimulatedSteps]]:
    """Each run with its simulation, as workers end them."""
    if not order:
        return
    with warnings.catch_warnings():
        # Python warns of a fork beside threads; the workers use none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        with ProcessPoolExecutor(min(num_workers, len(order)), _context(), _prepare) as pool:
            with stopping.held():  # what is raised while a process forks is swallowed
                tasks = {pool.submit(_worked, one.as_json()): one for one in order}
            told, waiting = Count(len(tasks), "runs simulated"), set(tasks)
            while waiting:
                told.tell(len(tasks) - len(waiting))
                ended, waiting = first_of(waiting, count.WORD_SECONDS, FIRST_COMPLETED)
                for task in ended:
                    yield tasks[task], SimulatedSteps.model_validate_json(task.result())
            told.end()


def failures(runs: Iterable[SimulatedSteps]) -> list[str]:
    """A line for each simulation that failed."""
    return [f"{one.experiment}.{one.run}: {one.reason}" for one in runs if one.has_failed]


def _named(one: Wanted, run: SimulatedSteps) -> SimulatedSteps:
    return run.model_copy(update={"experiment": one.experiment, "run": one.run})


def _weight(one: Wanted) -> int:
    """Roughly how long a simulation takes: layers, whose number settings name.

    Runs that are simulations themselves come last: their traces hold what they would show.
    """
    layers = one.plan.settings.declared().get("num_layers", 1)
    known = layers if isinstance(layers, int) else 1
    return known - 1000 if one.plan.nature == "simulated" else known


def _context() -> multiprocessing.context.BaseContext:
    """Workers are forked where that is safe: then they share what is loaded."""
    return multiprocessing.get_context("fork" if platform.system() == "Linux" else "spawn")


def _prepare() -> None:
    from runners.simulate.worker import prepare

    prepare()


def _worked(document: Mapping[str, Any]) -> str:
    from runners.simulate.worker import simulate_plan

    experiment = find(document["experiment"])
    declared = document["plan"]
    kind = experiment.settings_of(declared["strategy"], declared["settings"])
    plan = RunPlan.from_json(declared, kind)
    run = simulate_plan(experiment, document["run"], plan, document["device"])
    return run.model_dump_json(exclude_defaults=True)


def _kept(folder: Path, experiment: str) -> dict[str, SimulatedSteps]:
    """What was simulated before; nothing where the file is of another version or torn."""
    try:
        document = json.loads((folder / f"{experiment}.json").read_text(encoding="utf-8"))
        return {
            key: SimulatedSteps.model_validate_json(json.dumps(one))
            for key, one in document.items()
        }
    except (OSError, ValueError, ValidationError, AttributeError):
        return {}


def _keep(folder: Path, experiment: str, runs: Mapping[str, SimulatedSteps]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        key: one.model_dump(mode="json", exclude_defaults=True) for key, one in sorted(runs.items())
    }
    write_json(folder / f"{experiment}.json", document)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
