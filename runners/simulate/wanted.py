"""Runs of experiments that are to be simulated, by their names. No torch here.

In: names. Out: a `Wanted` each, whose key is equal where no simulation could differ.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runners.plans.experiment import RunPlan, find, names, on_device
from runners.simulate.processes import torch_release
from runners.system.errors import FixableError
from runners.traces.digest import program_digests, source_digest
from runners.traces.plan_grid import engine_digest

# Ends that ranks come to because of each other, and what they then do.
TAKE_OTHERS = {"deadlocked": "hang", "died": "die", "failed": "fail"}
_SPEED = "_per_second"  # settings of a link, which nothing passes
_FOLLOWS_FROM = ("strategy", "world_size", "seed", "needs_group", "own_network", "nature")
_ENTRY = "runners/simulate/one_rank.py"


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
        """What another process needs to know of it: experiments' settings cannot be pickled."""
        return {**vars(self), "plan": self.plan.as_json()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Wanted:
        """A run from what `as_json` made of it."""
        declared = document["plan"]
        experiment = find(document["experiment"])
        kind = experiment.settings_of(declared["strategy"], declared["settings"])
        return cls(**{**document, "plan": RunPlan.from_json(declared, kind)})


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
