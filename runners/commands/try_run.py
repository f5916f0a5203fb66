"""A try: one run of an experiment with settings of the reader's own.

In: an experiment, the name of a run, and texts such as `batch_size=50`. Out: the run's plan with
these settings and with whatever follows from them, or one line that says why there is none.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from runners.commands.expectation import expected_lines
from runners.measuring import measure
from runners.measuring.launch import Launcher
from runners.measuring.progress import Progress
from runners.plans.experiment import Experiment, RunPlan, check_name, find, nearest, on_device
from runners.plans.settings import RunSettings, following
from runners.system.errors import FixableError
from runners.traces import machine, tries
from runners.traces.schema import Setting
from runners.traces.summary import summary_lines

# What a plan itself says and a reader may set too, beside the run's settings.
OF_THE_PLAN = ("world_size", "seed", "budget_bytes")
MOST_RANKS = 8
MOST_COUNTED, MOST_BYTES = 10**8, 2**53  # beyond, settling alone would fill the memory


@dataclass(frozen=True)
class Trial:
    """One run as it is about to be tried.

    Attributes:
        run: the name of the declared run.
        plan: what is run.
        changed: what the reader set, by name: the declared value and the new one.
        followed: what that changed in turn.
        shortened: what is less than declared so that a try takes seconds.
    """

    run: str
    plan: RunPlan
    changed: dict[str, tuple[Setting, Setting]]
    followed: dict[str, tuple[Setting, Setting]]
    shortened: dict[str, tuple[Setting, Setting]]

    def lines(self) -> list[str]:
        """What differs from the run as declared, in words."""
        said = [_difference(name, *pair) for name, pair in self.changed.items()]
        said += [f"{_difference(*item)}, which follows" for item in _pairs(self.followed)]
        said += [f"{_difference(*item)}, to take seconds" for item in _pairs(self.shortened)]
        return said or ["as declared"]


def _pairs(
    differences: Mapping[str, tuple[Setting, Setting]],
) -> list[tuple[str, Setting, Setting]]:
    return [(name, before, after) for name, (before, after) in differences.items()]


def _difference(name: str, before: Setting, after: Setting) -> str:
    return f"{name} {_written(after)} instead of {_written(before)}"


def _written(value: Setting) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add = parser.add_argument
    add("run", nargs="?", default="", metavar="EXPERIMENT.RUN")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of your own")
    add("--forget", action="store_true", help="delete all tries")


def main(arguments: argparse.Namespace) -> int:
    """Measure one run and print what it was; 1 where its simulation failed."""
    if arguments.forget:
        print(f"{tries.forget()} tries deleted")
        return 0
    return _measured(arguments.run, arguments.set)


def _measured(wanted: str, settings: Sequence[str]) -> int:
    experiment_name, run = named(wanted)
    check_name(experiment_name)
    with measure.alone(), Launcher() as launcher:
        launcher.prepare(("timed", "metered"))  # torch loads there while it loads here
        experiment = on_device(find(experiment_name), machine.device_kind())
        trial = prepare(experiment, run, settings)
        print(f"{wanted}: {'; '.join(trial.lines())}", flush=True)
        changed = replace(experiment, runs={trial.run: trial.plan})
        expected, has_failed = expected_lines(changed, trial.run)
        print("\n".join(expected), flush=True)
        trace = measure.measure_alone(changed, trial.run, launcher, Progress())
    path = tries.keep(trace)
    for line in summary_lines(trace.runs[run]):
        print(line)
    print(f"kept in {machine.shown(path)}; `make serve` shows it beside the book's")
    return 1 if has_failed else 0


def named(text: str) -> tuple[str, str]:
    """The experiment and the run of `EXPERIMENT.RUN`.

    Raises:
        FixableError: it is not written so.
    """
    experiment, dot, run = text.partition(".")
    if not dot or not run:
        raise FixableError(f"name a run as EXPERIMENT.RUN, such as ddp.single, not {text!r}")
    return experiment, run


def prepare(experiment: Experiment, run: str, wanted: Iterable[str]) -> Trial:
    """The run with what a reader set.

    Args:
        experiment: where the run is declared.
        run: its name.
        wanted: `key=value` texts.

    Raises:
        FixableError: there is no such run or setting, or a value is of another type or impossible.
    """
    if run not in experiment.runs:
        hint = nearest(run, experiment.runs)
        raise FixableError(
            f"no run {run!r} in {experiment.name}{hint}; there are: {', '.join(experiment.runs)}"
        )
    declared = experiment.runs[run]
    before = values(declared)
    asked = _asked(f"{experiment.name}.{run}", before, wanted)
    _check_ranks(experiment, declared, asked)
    shortened = {
        name: value for name, value in experiment.shortened(run).items() if name not in asked
    }
    plan = _settled(experiment, declared, {**shortened, **asked})
    after = values(plan)
    for name, value in asked.items():
        if after[name] != value:
            raise FixableError(
                f"{name} follows from the other settings and would be {_written(after[name])}; "
                "set those"
            )
    differing = {n: (before.get(n), v) for n, v in after.items() if v != before.get(n)}
    return Trial(
        run,
        plan,
        changed={n: pair for n, pair in differing.items() if n in asked},
        followed={n: pair for n, pair in differing.items() if n not in {*asked, *shortened}},
        shortened={n: pair for n, pair in differing.items() if n in shortened},
    )


def values(plan: RunPlan) -> dict[str, Setting]:
    """All that a reader may set of a run, as it stands."""
    of_the_plan: dict[str, Setting] = {"world_size": plan.world_size, "seed": plan.seed}
    if plan.budget_bytes is not None:
        of_the_plan["budget_bytes"] = plan.budget_bytes
    return {**plan.settings.as_json(), **of_the_plan}


def _asked(run: str, known: Mapping[str, Setting], wanted: Iterable[str]) -> dict[str, Setting]:
    asked: dict[str, Setting] = {}
    for text in wanted:
        name, equals, value = text.partition("=")
        if not equals or not value:
            raise FixableError(f"write --set KEY=VALUE, not {text!r}")
        if name not in known:
            raise FixableError(
                f"no setting {name!r} in {run}{nearest(name, known)}; "
                f"there are: {', '.join(sorted(known))}"
            )
        asked[name] = _read(name, value, known[name])
    return asked


def _read(name: str, text: str, like: Setting) -> Setting:
    """A value of the type of the declared one."""
    if isinstance(like, list):
        return [_read_one(name, part, like[0]) for part in text.split(",")]  # type: ignore[return-value]
    return _read_one(name, text, like)


def _read_one(name: str, text: str, like: Setting) -> Setting:
    if isinstance(like, str):
        return text
    if isinstance(like, bool) or not isinstance(like, int | float):
        raise FixableError(f"{name} cannot be set from here")
    kind = "a whole number" if isinstance(like, int) else "a number"
    try:
        value = type(like)(text)
    except ValueError:
        raise FixableError(f"{name} must be {kind}, not {text!r}") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise FixableError(f"{name} must be finite, not {text}")
    if isinstance(value, int):
        _check_size(name, value, min(like, 1))
    return value


def _check_size(name: str, value: int, least: float) -> None:
    if value < least:
        raise FixableError(f"{name} must be at least {least}, not {value}")
    most = MOST_BYTES if name.endswith("_bytes") else MOST_COUNTED
    if value > most:
        raise FixableError(f"{name} must be at most {most}")


def _check_ranks(experiment: Experiment, declared: RunPlan, asked: Mapping[str, Setting]) -> None:
    """Refuse numbers of ranks that a strategy is not written for."""
    wanted = asked.get("world_size", declared.world_size)
    assert isinstance(wanted, int)
    if wanted == declared.world_size:
        return
    sizes = {p.world_size for p in experiment.runs.values() if p.strategy == declared.strategy}
    if wanted > MOST_RANKS:
        raise FixableError(f"world_size must be at most {MOST_RANKS}, not {wanted}")
    if max(sizes) == 1:
        raise FixableError(f"{declared.strategy} trains on one device, so world_size stays 1")
    if wanted == 1 and min(sizes) > 1:
        raise FixableError(
            f"{declared.strategy} needs ranks to share with; world_size must be 2 up"
        )


def _settled(experiment: Experiment, declared: RunPlan, changes: Mapping[str, Setting]) -> RunPlan:
    of_the_plan = {name: value for name, value in changes.items() if name in OF_THE_PLAN}
    settings = {n: v for n, v in changes.items() if n not in OF_THE_PLAN}
    kind: type[RunSettings] = type(declared.settings)
    followed = following(kind)
    asked = {n: v for n, v in settings.items() if n not in followed}
    try:
        return replace(
            declared,
            settings=declared.settings.changed(asked),
            has_timeline=False,  # nothing that a try prints comes from one
            **of_the_plan,  # type: ignore[arg-type]
        )
    except ValueError as error:
        raise FixableError(f"{experiment.name}: {error}") from None
