"""Experiments: one file each, the technique first, then the runs as pure values.

An experiment is a file in `runners/experiments/`. It reads like a program: strategies, each a
function of a `Rank`; below them what the runs are:

    QUESTION    what it asks, one sentence
    Settings    the settings of its runs (`runners/core/declared/settings.py`)
    RUNS        {name: Declaration}, in the order they run; each names its strategy's function

and, where there is need:

    STRATEGIES  {strategy: function of a Rank}, of those that are no function of the file
    TRIED_WITH  {name or "*": settings} that make a try of that run, or a test of it, take seconds
    ON_CUDA     {name or "*": settings} that a run takes on an accelerator

A file of several experiments has a class for each, with these names in it, and lists them:

    EXPERIMENTS = {"averaging": _Averaging, "synchronization": _Synchronization}

`find` discovers experiments by listing the folder; nothing registers anywhere. What runs are is
read without torch: until a rank needs a strategy, a name that a file imports from torch, or from a
module of ours that needs it, stands for nothing. So what is declared may not use such a name. No
torch here.
"""

from __future__ import annotations

import builtins
import importlib
import runpy
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from traceback import extract_tb
from types import ModuleType, SimpleNamespace
from typing import Any, Generic, Literal, Self

from pydantic import ValidationError

from proofbook.runners.core.declared.settings import FreeSettings, RunSettings, S, SettingsError
from proofbook.runners.core.trace.records import Death
from proofbook.runners.core.trace.schema import Nature, Setting, Status
from proofbook.runners.system.book import ROOT, SEVERAL, experiment_files
from proofbook.runners.system.errors import FixableError, first_line, nearest, unknown

# What a file of strategies imports, and nothing that declares runs may use.
_ROOMS = ("core.ranks", "core.meters", "training", "judging")
NEEDS_TORCH = ("torch", *(f"proofbook.runners.{room}" for room in _ROOMS))
PassName = Literal["timed", "metered", "budgeted"]
Module = ModuleType | SimpleNamespace  # of an experiment
Strategy = Callable[[Any], None]  # of a `runners.core.ranks.rank.Rank`


@dataclass(frozen=True)
class Declaration(Generic[S]):
    """One run, as declared."""

    strategy: str  # a function of the experiment's file, or a key of its `STRATEGIES`
    world_size: int = 1
    # Settings that the strategy reads and the page may state; a mapping stands for `FreeSettings`.
    settings: S = field(default_factory=FreeSettings)  # type: ignore[assignment]
    expected: Status = "completed"  # how the run is meant to end; anything else is a surprise
    # What each rank may allocate above its start; None is no limit. With a budget, a `budgeted`
    # pass stands for the two others, unless `passes` names it beside them.
    budget_bytes: int | None = None
    # `timed` trains to the end with no meter, `metered` takes a few steps under the meters,
    # `budgeted` trains to the end under the budget. Each is its own set of processes.
    passes: tuple[PassName, ...] = ("timed", "metered")
    seed: int = 42  # of data and parameters
    keeps_steps: bool = False  # whether the trace keeps the loss of every step
    needs_group: bool = True  # whether ranks form a process group before the strategy starts
    has_timeline: bool = False  # whether a metered pass also profiles one step
    # Whether ranks may share one accelerator. They then communicate over gloo, which moves
    # accelerator tensors in `all_reduce` and `broadcast` only.
    can_share_device: bool = True
    only_on_cpu: bool = False  # even where there are accelerators
    # `paced` where each stage lasts a set time, `simulated` where tensors are fake; pages say so
    # beside every number of the run.
    nature: Nature = "real"
    full: bool = False  # a heavier sweep: only `run --full` measures it, else it is skipped
    # Whether each rank lives in a network namespace of its own, with one link to a switch; skipped
    # where that cannot be made. A setting `link_bits_per_second` limits the link.
    own_network: bool = False
    follows: str | None = None  # an earlier run, whose times ranks read as `rank.followed`
    # Of a run that is meant to end as `died`, and of no other. Another death is a surprise where a
    # process brought it about itself; one from outside is not measured.
    expected_death: Death | None = None
    label: str = ""  # key of `strategies` in the generator's `ui.yml`; by default the strategy

    def __post_init__(self) -> None:
        """Tell the settings which run they are of, and refuse a death that is not declared."""
        given: Any = self.settings
        if not isinstance(given, RunSettings):
            given = FreeSettings(**given)
        settings = given.of_run(self.strategy, self.world_size, self.seed)
        object.__setattr__(self, "settings", settings)
        if self.budget_bytes is not None and "budgeted" not in self.passes:
            object.__setattr__(self, "passes", ("budgeted",))
        if (self.expected == "died") != (self.expected_death is not None):
            raise ValueError(
                'expected="died" and expected_death belong together; write for example '
                'expected_death=Death(rank=1, phase="forward", signal="SIGKILL")'
            )

    @property
    def link_bits_per_second(self) -> int | None:
        """The rate of each rank's link; None is all it can."""
        return getattr(self.settings, "link_bits_per_second", None)


@dataclass(frozen=True)
class Experiment:
    """One experiment, found by name."""

    name: str
    question: str
    runs: Mapping[str, Declaration]
    path: Path
    tried_with: Mapping[str, Mapping[str, Setting]] = field(default_factory=dict)
    on_cuda: Mapping[str, Mapping[str, Setting]] = field(default_factory=dict)
    is_short: bool = False  # its runs have the sizes of a try

    @property
    def is_full(self) -> bool:
        """Whether only `run --full` measures it: each of its runs is heavy."""
        return all(declaration.full for declaration in self.runs.values())

    @cached_property
    def strategies(self) -> Mapping[str, Strategy]:
        """Its strategies by name; the file, which needs torch, is loaded whole for them."""
        module = _whole_module(self.path)
        return _strategies(module, _declaring(module, self.name))

    def shortened(self, run: str) -> dict[str, Setting]:
        """The settings of a run that `TRIED_WITH` changes, so that it takes seconds."""
        known = self.runs[run].settings.declared()
        common = {n: v for n, v in self.tried_with.get("*", {}).items() if n in known}
        return {**common, **self.tried_with.get(run, {})}


def names() -> list[str]:
    """The names of all experiments, sorted."""
    return sorted(experiment_files())


def check_names(wanted: Sequence[str]) -> list[str]:
    """The names of experiments, each once, or of all; FixableError where none has a name."""
    for name in wanted:
        check_name(name)
    return list(dict.fromkeys(wanted)) or names()


def check_name(name: str) -> Path:
    """The path of an experiment's file, not loaded; FixableError where none has the name."""
    files = experiment_files()
    if name not in files:
        raise unknown("experiment", name, files)
    return files[name]


def command_for(name: str) -> str | None:
    """The command that measures an experiment; None where none has this name."""
    return f"python -m runners run {name}" if name in names() else None


def on_device(experiment: Experiment, device: str, *, is_short: bool = False) -> Experiment:
    """An Experiment copy, settings changed by `TRIED_WITH` if short, else on "cuda" by `ON_CUDA`.

    ValueError where the changed settings are impossible.
    """
    runs = dict(experiment.runs)
    for name, declaration in experiment.runs.items():
        changes: Mapping[str, Setting] = {}
        if is_short:
            changes = experiment.shortened(name)
        elif device == "cuda" and not declaration.only_on_cpu:
            changes = {**experiment.on_cuda.get("*", {}), **experiment.on_cuda.get(name, {})}
        if changes:
            runs[name] = replace(declaration, settings=declaration.settings.changed(changes))
    return replace(experiment, runs=runs, is_short=is_short)


def find(name: str) -> Experiment:
    """The Experiment of a name, its file executed without torch, which its strategies load later.

    FixableError where none has the name, or its file cannot be executed or lacks its runs;
    SettingsError where it declares an impossible setting, or a strategy that its file lacks.
    """
    path = check_name(name)
    try:
        module = _declared(name, path)
    except ValidationError as error:
        raise SettingsError.of(error) from None
    except FixableError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 an author has left it unfinished
        raise _broken(error, path) from None
    declaring = _declaring(module, name)
    for needed in ("QUESTION", "RUNS"):
        if not getattr(declaring, needed, None):
            raise FixableError(
                f"{path}: declares no {needed}; see runners/experiments/_template.py"
            )
    _check_strategies(declaring.RUNS, _strategies(module, declaring), path)
    return Experiment(
        name,
        declaring.QUESTION,
        declaring.RUNS,
        path,
        getattr(declaring, "TRIED_WITH", {}),
        getattr(declaring, "ON_CUDA", {}),
    )


def runs_named(wanted: Iterable[str]) -> dict[str, list[str]]:
    """By experiment: names of runs, each once; `EXPERIMENT.RUN` asks for a run, `EXPERIMENT` all.

    FixableError where there is no such experiment, or no such run of it.
    """
    named: dict[str, list[str]] = {}
    for words in wanted:
        name, _, run = words.partition(".")
        runs = find(name).runs
        if run and run not in runs:
            raise unknown(f"run of {name}", run, runs)
        known = named.setdefault(name, [])
        known += [run for run in ([run] if run else runs) if run not in known]
    return named


def _broken(error: BaseException, path: Path) -> FixableError:
    """The error of an experiment's file that cannot be executed, at its line."""
    frames = [at for at in extract_tb(error.__traceback__) if at.filename == str(path)]
    place, message = f"{path}:{frames[-1].lineno}" if frames else f"{path}", first_line(error)
    if isinstance(error, SyntaxError):
        place, message = f"{error.filename}:{error.lineno}", error.msg
    return FixableError(f"{place}: {type(error).__name__}: {message}; correct this file")


def _declaring(module: Module, name: str) -> Any:  # noqa: ANN401 a module, or a class in it
    """Where an experiment's names stand: in its class of `EXPERIMENTS`, or in the module."""
    return getattr(module, SEVERAL, {}).get(name, module)


def _strategies(module: Module, declaring: object) -> dict[str, Strategy]:
    return {**vars(module), **getattr(declaring, "STRATEGIES", {})}


def _check_strategies(
    runs: Mapping[str, Declaration], strategies: Mapping[str, Strategy], path: Path
) -> None:
    """Refuse a run whose strategy is neither in the file nor in its `STRATEGIES`."""
    for run, declaration in runs.items():
        if declaration.strategy not in strategies:
            functions = [name for name, value in strategies.items() if callable(value)]
            near = nearest(declaration.strategy, functions)
            raise SettingsError(f"{path}: run {run!r}: no function {declaration.strategy!r}{near}")


def _declared(name: str, path: Path) -> Module:
    """The module of an experiment; without torch, unless that is loaded anyway."""
    if "torch" in sys.modules:
        return _whole_module(path)
    names = {"__builtins__": {**vars(builtins), "__import__": _import_without_torch}}
    return SimpleNamespace(**runpy.run_path(str(path), names, f"declared.{name}"))


def _whole_module(path: Path) -> Module:
    if path.is_relative_to(ROOT / "runners"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        return importlib.import_module(".".join(["proofbook", *parts]))
    return SimpleNamespace(**runpy.run_path(str(path), run_name=path.stem))


class _NotLoaded:
    """A stand-in for a name imported with torch: a value, a decorator, a base of a class."""

    def __getattr__(self, name: str) -> Self:
        return self

    def __call__(self, *values: object, **named: object) -> object:
        return values[0] if values and callable(values[0]) else self

    def __mro_entries__(self, bases: tuple[type, ...]) -> tuple[type, ...]:
        return ()


def _import_without_torch(
    name: str,
    namespace: Mapping[str, Any] | None = None,
    local: Mapping[str, Any] | None = None,
    wanted: Sequence[str] = (),
    level: int = 0,
) -> object:
    if name.startswith(NEEDS_TORCH):
        return _NotLoaded()
    return __import__(name, namespace, local, wanted, level)
