"""What an experiment is: runs declared as pure values, and the code each strategy executes.

An experiment is one file in `runners/experiments/` with three names:

    QUESTION    what it asks, one sentence
    RUNS        {name: RunPlan}, in the order they run
    STRATEGIES  {strategy: function of a Rank}

and, for `python -m runners try`, where there is need:

    settle      a function from a RunPlan to the RunPlan in which the settings that follow from
                others are worked out; it raises ValueError where they are impossible
    TRIED_WITH  {name: settings} that make a try of that run take seconds
    FULL        True: a heavier sweep as a whole; only `run --full` measures it
    forecast    a function from a RunPlan to the `Work` of one step on the busiest rank, by closed
                forms alone; `python -m runners predict` turns it into bytes and seconds
    CHOICES     which of several runs should be best, asked before they have run
    ON_CUDA     {name or "*": settings} that a run takes on an accelerator, before `settle`

`find` discovers them by listing the folder; nothing registers anywhere. No torch here.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from runners.plans.work import Choice, Work
from runners.traces.records import Death, Nature, Setting, Status

FOLDER = Path(__file__).resolve().parents[1] / "experiments"
# A folder of experiments beside ours: the tests' own, or ones not meant to be part of the book.
MORE = "PROOFBOOK_EXPERIMENTS"
# What `predict` measures is run as an experiment is, and is none of the book's.
PRIMITIVES = "primitives"
PassName = Literal["timed", "metered", "budgeted"]
Strategy = Callable[[Any], None]  # of a `runners.ranks.rank.Rank`
Settle = Callable[["RunPlan"], "RunPlan"]
Forecast = Callable[["RunPlan"], Work | None]


@dataclass(frozen=True)
class RunPlan:
    """One run, as declared.

    Attributes:
        strategy: the key of the experiment's `STRATEGIES`.
        world_size: the number of ranks.
        settings: what the strategy reads; also what the page may state as given.
        expected: how the run is meant to end; anything else is a surprise.
        expected_death: of a run that is meant to end as `died`, and of no other: which rank dies,
            in which phase, by which signal or with which exit code. Another death is a surprise
            where a process brought it about itself; one from outside is not measured.
        budget_bytes: what each rank may allocate above its start; None is no limit.
        passes: `timed` trains to the end with no meter, `metered` takes a few steps under the
            meters, `budgeted` trains to the end under the budget. Each is its own set of processes.
        seed: seeds data and parameters.
        keeps_steps: whether the trace keeps the loss of every step.
        needs_group: whether the ranks form a process group before the strategy starts.
        has_timeline: whether a metered pass also profiles one step, for who was busy when.
        can_share_device: whether ranks may share one accelerator. They then speak through gloo,
            which moves accelerator tensors in `all_reduce` and `broadcast` only.
        only_on_cpu: whether the ranks stay on the CPU even where there are accelerators.
        nature: `paced` where stages last as long as they were told, `simulated` where tensors are
            fake; pages say so beside every number of the run.
        full: a heavier sweep: measured only by `run --full`, else skipped with that reason.
        own_network: each rank lives in a network namespace of its own, with one link to a switch;
            skipped, with the reason, where that cannot be made.
        link_bits_per_second: what each of these links lets through; None is as fast as it goes.
        follows: an earlier run of the experiment whose measured times this one works with; its
            ranks read them as `rank.followed`.
    """

    strategy: str
    world_size: int = 1
    settings: Mapping[str, Setting] = field(default_factory=dict)
    expected: Status = "completed"
    budget_bytes: int | None = None
    passes: tuple[PassName, ...] = ("timed", "metered")
    seed: int = 42
    keeps_steps: bool = False
    needs_group: bool = True
    has_timeline: bool = True
    can_share_device: bool = True
    only_on_cpu: bool = False
    nature: Nature = "real"
    full: bool = False
    own_network: bool = False
    link_bits_per_second: int | None = None
    follows: str | None = None
    expected_death: Death | None = None

    def __post_init__(self) -> None:
        """Refuse a run that is meant to die without saying how.

        Raises:
            ValueError: it does not declare its death, or declares one that it does not expect.
        """
        if (self.expected == "died") != (self.expected_death is not None):
            raise ValueError(
                'expected="died" and expected_death belong together; write for example '
                'expected_death=Death(rank=1, phase="forward", signal="SIGKILL")'
            )

    def as_json(self) -> dict[str, Any]:
        """All that is declared, as JSON carries it."""
        death = self.expected_death.model_dump() if self.expected_death else None
        return {**asdict(self), "expected_death": death}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> RunPlan:
        """A run from what `as_json` made of it."""
        death = document["expected_death"]
        return cls(**{**document, "expected_death": Death(**death) if death else None})


@dataclass(frozen=True)
class Experiment:
    """One experiment, found by name."""

    name: str
    question: str
    runs: Mapping[str, RunPlan]
    strategies: Mapping[str, Strategy]
    settle: Settle | None = None
    tried_with: Mapping[str, Mapping[str, Setting]] = field(default_factory=dict)
    full: bool = False
    forecast: Forecast | None = None
    choices: tuple[Choice, ...] = ()
    on_cuda: Mapping[str, Mapping[str, Setting]] = field(default_factory=dict)


def whole_number(settings: Mapping[str, Setting], name: str) -> int:
    """A setting that counts something.

    Raises:
        ValueError: it is no whole number above zero.
    """
    value = settings[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number above zero, not {value!r}")
    return value


class UnknownExperimentError(ValueError):
    """There is no experiment of that name."""


def _files() -> dict[str, Path]:
    folders = [FOLDER, *([Path(os.environ[MORE])] if MORE in os.environ else [])]
    return {
        path.stem: path
        for folder in folders
        for path in sorted(folder.glob("*.py"))
        if not path.stem.startswith("_")
    }


def names() -> list[str]:
    """The names of all experiments, sorted."""
    return sorted(_files())


def check_name(name: str) -> Path:
    """The file of an experiment, which is not loaded.

    Raises:
        UnknownExperimentError: there is none of that name.
    """
    path = _files().get(name)
    if path is None:
        raise UnknownExperimentError(f"no experiment {name!r}; there are: {', '.join(names())}")
    return path


def whole_is_full(name: str) -> bool:
    """Whether an experiment is full as a whole, read off its file, which is not loaded.

    Raises:
        UnknownExperimentError: there is none of that name.
    """
    try:
        tree = ast.parse(check_name(name).read_text(encoding="utf-8"))
    except SyntaxError:
        return False
    return any(
        isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == "FULL" for t in node.targets)
        and isinstance(node.value, ast.Constant)
        and node.value.value is True
        for node in tree.body
    )


def on_device(experiment: Experiment, device: str) -> Experiment:
    """An experiment as it runs on a kind of device: on an accelerator its models grow.

    Raises:
        ValueError: the settings of `ON_CUDA` cannot be.
    """
    if device != "cuda" or not experiment.on_cuda:
        return experiment
    settle: Settle = experiment.settle or (lambda plan: plan)
    runs = {}
    for name, plan in experiment.runs.items():
        grown = {**experiment.on_cuda.get("*", {}), **experiment.on_cuda.get(name, {})}
        changed = replace(plan, settings={**plan.settings, **grown})
        runs[name] = plan if plan.only_on_cpu or not grown else settle(changed)
    return replace(experiment, runs=runs)


def find(name: str) -> Experiment:
    """Load one experiment; its file imports torch.

    Raises:
        UnknownExperimentError: there is none of that name.
    """
    path = FOLDER if name == PRIMITIVES else check_name(name)
    if path == FOLDER:
        module = importlib.import_module(f"runners.forecast.{PRIMITIVES}")
    elif path.parent == FOLDER:
        module = importlib.import_module(f"runners.experiments.{name}")
    else:
        module = _load(path)
    return Experiment(
        name,
        module.QUESTION,
        module.RUNS,
        module.STRATEGIES,
        getattr(module, "settle", None),
        getattr(module, "TRIED_WITH", {}),
        getattr(module, "FULL", False) is True,
        getattr(module, "forecast", None),
        tuple(getattr(module, "CHOICES", ())),
        getattr(module, "ON_CUDA", {}),
    )


def _load(path: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
