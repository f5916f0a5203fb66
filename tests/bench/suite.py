"""The whole suite by the runners, against the same runs as plain scripts started by torchrun.

Every run that `run` measures by default and that is meant to complete is taken twice, one right
after the other: by the runners with all its passes, through one launcher, as `run` does it; and
once to its end by `plain/strategy.py`, one start of torchrun a run, with nothing recorded. A run
that has no pass to the end is as short there as its metered pass. Neither writes a trace. Since a
strategy imports what the runners import, its script starts later than one that needs torch alone;
how much later is told too.

`suite:10` takes every tenth run, another tenth each time; `suite:10:3` the same tenth again.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from runners.measuring.launch import Launcher
from runners.measuring.measure import alone, measure_run
from runners.plans.experiment import Experiment, RunPlan, find, names, on_device
from runners.traces import machine
from tests.bench.plainly import PlainError, plainly
from tests.bench.ratio import Ratio, in_turn, seconds_of

SCRIPTS = Path(__file__).resolve().parent / "plain"
NUM_STARTS = 3  # of each number of ranks, to know what a start alone takes


@dataclass(frozen=True)
class Case:
    """One run of an experiment."""

    experiment: Experiment
    run: str

    @property
    def plan(self) -> RunPlan:
        """As it is declared."""
        return self.experiment.runs[self.run]

    def __str__(self) -> str:
        return f"{self.experiment.name}.{self.run}"


def reason_against(experiment: Experiment, plan: RunPlan) -> str | None:
    """Why a run is not taken; None where it is."""
    reasons = {
        "measured only by --full": experiment.full or plan.full,
        "simulated": plan.nature == "simulated",
        "with a network of its own": plan.own_network,
        f"meant to end {plan.expected.replace('_', ' ')}": plan.expected != "completed",
        "following another run": plan.follows is not None,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def cases(device: str) -> tuple[list[Case], Counter[str]]:
    """The runs that are taken, and how many are not, by reason."""
    taken, left_out = [], Counter[str]()
    for name in names():
        experiment = on_device(find(name), device)
        for run, plan in experiment.runs.items():
            reason = reason_against(experiment, plan)
            if reason is None:
                taken.append(Case(experiment, run))
            else:
                left_out[reason] += 1
    return taken, left_out


def plain_run(launcher: Launcher, case: Case | None, plan: RunPlan, *, digest: bool = False) -> str:
    """One run as a plain script; what its ranks printed. Without a case, a start alone.

    Raises:
        PlainError: it did not end well.
    """
    with tempfile.TemporaryDirectory() as folder:
        request = {
            "experiment": case.experiment.name if case else None,
            "plan": plan.as_json(),
            "device": launcher.device_of(plan),
            "backend": launcher.backend_of(plan),
            "scratch": folder,
            "tells_digest": digest,
        }
        path = Path(folder) / "request.json"
        path.write_text(json.dumps(request), encoding="utf-8")
        return plainly(plan.world_size, [str(SCRIPTS / "strategy.py"), str(path)])


@dataclass(frozen=True)
class Taken:
    """Seconds that one run took, both ways."""

    case: Case
    runners: float
    plain: float


def _take(launcher: Launcher, case: Case) -> Taken | str:
    """One run both ways; a line instead where it did not end well in one of them."""
    started = time.perf_counter()
    run = measure_run(launcher, case.experiment, case.run)
    runners = time.perf_counter() - started
    if run.status != "completed":
        return f"{case}: {run.status.replace('_', ' ')} by the runners: {run.reason or run.error}"
    try:
        plain = seconds_of(lambda: plain_run(launcher, case, case.plan))
    except PlainError as error:
        return f"{case}: by plain torchrun: {error}"
    return Taken(case, runners, plain)


def _loading(launcher: Launcher, known: list[Case]) -> float:
    """Seconds until the launcher can start ranks of any pass at once, which `run` spends once."""
    case = max(known, key=lambda one: len(one.plan.passes))
    cold, warm = (
        seconds_of(lambda: measure_run(launcher, case.experiment, case.run)) for _ in range(2)
    )
    return max(0.0, cold - warm)


def _sample(taken: list[Case], argument: str) -> list[Case]:
    every, _, first = argument.partition(":")
    step = min(int(every), len(taken))
    start = (int(first) if first else int(time.time())) % step
    if step > 1:
        _say(f"one run in {step}, from number {start}: `suite:{step}:{start}` takes the same")
    return taken[start::step]


def _say(line: str) -> None:
    sys.stderr.write(f"    {line}\n")
    sys.stderr.flush()


def ratios(argument: str = "1") -> Iterator[Ratio | str]:
    """In all and by experiment; then what was left out, and why.

    Args:
        argument: `N` or `N:FIRST`: every N-th run only.

    Raises:
        BusyError: something is being measured on this machine.
    """
    device = machine.device_kind()
    all_cases, left_out = cases(device)
    chosen = _sample(all_cases, argument)
    found: list[Taken] = []
    failed: list[str] = []
    with alone(), Launcher(device) as launcher:
        loading = _loading(launcher, all_cases)
        for number, case in enumerate(chosen, start=1):
            one = _take(launcher, case)
            if isinstance(one, str):
                failed.append(one)
                _say(f"{number} of {len(chosen)}  {one}")
                continue
            found.append(one)
            times = f"runners {one.runners:.1f} s, torchrun {one.plain:.1f} s"
            _say(f"{number} of {len(chosen)}  {case}: {times}")
        yield from _in_all(found, loading, _starts(launcher, found))
        yield _barest(launcher)
    yield from _by_experiment(found)
    num_left_out = sum(left_out.values())
    why = ", ".join(f"{count} {reason}" for reason, count in left_out.most_common())
    yield f"left out {num_left_out} of {num_left_out + len(all_cases)} runs: {why}"
    yield from (f"left out, it did not end well: {line}" for line in failed)


def _starts(launcher: Launcher, found: list[Taken]) -> float:
    """Seconds that the plain runs' starts take: ranks that load torch, meet and leave."""
    sizes = Counter(one.case.plan.world_size for one in found)
    total = 0.0
    for size, count in sizes.items():
        plan = RunPlan("start", world_size=size)
        start = partial(plain_run, launcher, None, plan)
        seconds = [seconds_of(start) for _ in range(min(count, NUM_STARTS))]
        total += count * statistics.median(seconds)
    return total


def _barest(launcher: Launcher) -> Ratio:
    works: dict[str, Callable[[], object]] = {
        "strategy": partial(plain_run, launcher, None, RunPlan("start")),
        "barest": partial(plainly, 1, [str(SCRIPTS / "start.py")]),
    }
    seconds = in_turn(works, NUM_STARTS)
    return Ratio(
        "torchrun's start of one such script",
        "of one that needs torch alone",
        seconds["strategy"],
        seconds["barest"],
    )


def _in_all(found: list[Taken], loading: float, starts: float) -> Iterator[Ratio]:
    runners = loading + sum(one.runners for one in found)
    plain = sum(one.plain for one in found)
    runs = f"{len(found)} runs by the runners"
    yield Ratio(runs, "by plain torchrun", [runners], [plain])
    yield Ratio(runs, "by plain torchrun without its starts", [runners], [plain - starts])


def _by_experiment(found: list[Taken]) -> Iterator[Ratio]:
    by_name: defaultdict[str, list[Taken]] = defaultdict(list)
    for one in found:
        by_name[one.case.experiment.name].append(one)
    for name, taken in by_name.items():
        runners, plain = sum(one.runners for one in taken), sum(one.plain for one in taken)
        yield Ratio(f"`{name}`, {len(taken)} runs", "plain torchrun", [runners], [plain])
