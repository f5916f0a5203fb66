"""What a run will need, as its simulation shows it: bytes, and what ranks do in one step. No torch.

In: `SimulatedSteps`. Out: a `Work`. Neither depends on the machine, so that `work.json` beside this
file holds them for the book's runs, under a digest of all that they follow from. A run whose code
or settings have changed since is simulated when its work is asked for, and kept in `.cache`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from runners.plans.experiment import Experiment, RunPlan
from runners.simulate.step_log import Cost, Moment, SimulatedSteps
from runners.simulate.suite import SimulationError, Wanted, cores, simulate
from runners.traces.schema import Record

COMMITTED = Path(__file__).with_name("work.json")


class RankWork(Record):
    """One step of one rank."""

    moments: list[Moment]
    touched_bytes: int = Field(description="of memory that is new to the step")


class Work(Record):
    """What a run needs, on any machine.

    Where its ranks are alike, `ranks` holds the first of them only.
    """

    peak_bytes: int | None = Field(default=None, description="of the fullest rank")
    num_ranks: int = 1
    ranks: list[RankWork] = []
    reason: str | None = Field(default=None, description="why it cannot be simulated")
    has_failed: bool = Field(default=False, description="the reason is an error; never kept")

    @property
    def are_alike(self) -> bool:
        """Whether every rank does what the first does."""
        return len(self.ranks) == 1


class Works(Record):
    """The file of committed work; equal stretches of computing are kept once."""

    schema_version: Literal[1]
    costs: list[list[Cost]]
    runs: dict[str, dict[str, Any]] = Field(description="by digest; `costs` holds indices")


def work_of(run: SimulatedSteps, plan: RunPlan) -> Work:
    """What a simulation says of one step; of a run that nobody times, its peak alone."""
    are_alike = len({log.without_places().model_dump_json() for log in run.ranks}) == 1
    ranks = run.ranks[:1] if are_alike else run.ranks
    has_steps = "timed" in plan.passes and all(log.timeline for log in ranks)
    return Work(
        peak_bytes=max((log.peak_bytes for log in run.ranks if log.peak_bytes), default=None),
        num_ranks=plan.world_size,
        ranks=[RankWork(moments=log.timeline, touched_bytes=log.touched_bytes) for log in ranks]
        if has_steps
        else [],
        reason=run.reason,
        has_failed=run.has_failed,
    )


def is_wanted(plan: RunPlan) -> bool:
    """Whether a pass of this run measures what a simulation tells of it."""
    return "metered" in plan.passes or ("timed" in plan.passes and plan.strategy != "program")


def works(experiments: Iterable[Experiment]) -> dict[str, Work]:
    """The work of every run of some experiments, by `experiment.run`."""
    asked = [
        Wanted.of(experiment, name, plan)
        for experiment in experiments
        for name, plan in experiment.runs.items()
        if is_wanted(plan)
    ]
    known = _read(COMMITTED)
    missing = [one for one in asked if one.key not in known]
    simulated = simulate(missing, num_workers=cores()).runs if missing else []
    new = {one.key: work_of(run, one.plan) for one, run in zip(missing, simulated, strict=True)}
    return {f"{one.experiment}.{one.run}": known.get(one.key) or new[one.key] for one in asked}


def failures(known: Mapping[str, Work]) -> list[str]:
    """A line for each run whose simulation failed."""
    return [f"{name}: {work.reason}" for name, work in known.items() if work.has_failed]


def complete_works(experiments: Iterable[Experiment]) -> dict[str, Work]:
    """The work of every run, for what rests on all of them.

    Raises:
        SimulationError: simulations failed.
    """
    known = works(experiments)
    if failures(known):
        raise SimulationError(failures(known))
    return known


def keep(experiments: Sequence[Experiment], path: Path = COMMITTED) -> int:
    """Write the work of all these runs into the committed file; how many there are.

    Raises:
        SimulationError: simulations failed.
    """
    found = complete_works(experiments)
    runs = {
        _key(experiment, name): found[f"{experiment.name}.{name}"]
        for experiment in experiments
        for name, plan in experiment.runs.items()
        if is_wanted(plan)
    }
    path.write_text(_written(runs), encoding="utf-8")
    _read.cache_clear()
    return len(runs)


def stale(experiments: Iterable[Experiment], path: Path = COMMITTED) -> list[str]:
    """The runs whose work the committed file lacks, by `experiment.run`."""
    known = _read(path)
    return [
        f"{experiment.name}.{name}"
        for experiment in experiments
        for name, plan in experiment.runs.items()
        if is_wanted(plan) and _key(experiment, name) not in known
    ]


def _key(experiment: Experiment, name: str) -> str:
    return Wanted.of(experiment, name, experiment.runs[name]).key


def _written(runs: Mapping[str, Work]) -> str:
    """The file: a line for each stretch of computing, and one for each run."""
    numbers: dict[str, int] = {}
    documents = {}
    for key, work in sorted(runs.items()):
        document = work.model_dump(mode="json", exclude_defaults=True)
        for rank in document.get("ranks", ()):
            for moment in rank["moments"]:
                if "costs" in moment:
                    text = json.dumps(moment["costs"])
                    moment["costs"] = numbers.setdefault(text, len(numbers))
        documents[key] = json.dumps(document)
    costs = ",\n".join(numbers)
    lines = ",\n".join(f'"{key}": {text}' for key, text in documents.items())
    return f'{{"schema_version": 1,\n"costs": [\n{costs}\n],\n"runs": {{\n{lines}\n}}}}\n'


@cache
def _read(path: Path) -> dict[str, Work]:
    """The committed work by digest; none where there is no such file, or one of another form."""
    try:
        found = Works.model_validate_json(path.read_text(encoding="utf-8"))
        return {key: _work(found.costs, document) for key, document in found.runs.items()}
    except (OSError, ValidationError, KeyError, IndexError):
        return {}


def _work(costs: Sequence[Sequence[Cost]], document: dict[str, Any]) -> Work:
    for rank in document.get("ranks", ()):
        for moment in rank["moments"]:
            if "costs" in moment:
                moment["costs"] = costs[moment["costs"]]
    return Work.model_validate_json(json.dumps(document))
