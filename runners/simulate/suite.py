"""Runs of experiments, each simulated rank by rank. No torch here.

In: names of runs. Out: a `SimulatedRun` each. Every run has a process of its own, in which its
ranks follow each other: a crash or an endless loop costs that run alone.
"""

from __future__ import annotations

import os
import resource
import time
import traceback
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import NamedTuple

from runners.plans.experiment import RunPlan, find, names
from runners.simulate.log import RankLog, SimulatedRun, UnsimulatedError
from runners.simulate.processes import Job, finished
from runners.system.errors import FixableError

# Processor seconds of one rank: a program that waits for a value to change never ends.
MOST_SECONDS = 60
MOST_CHARACTERS = 160  # of a message that is not ours
# Ends that ranks come to because of each other, and what they then do.
TAKE_OTHERS = {"deadlocked": "hang", "died": "die", "failed": "fail"}


class Wanted(NamedTuple):
    """One run to simulate, by name; another process loads its settings anew."""

    experiment: str
    run: str

    @property
    def plan(self) -> RunPlan:
        """The run as declared."""
        return find(self.experiment).runs[self.run]

    def unsimulated(self, reason: str, *, has_failed: bool = True) -> SimulatedRun:
        """That it could not be simulated, and why."""
        return SimulatedRun(**self._asdict(), reason=reason, has_failed=has_failed)


def wanted(names_given: Iterable[str]) -> list[Wanted]:
    """The runs that are named: `EXPERIMENT` or `EXPERIMENT.RUN`; all without a name.

    Raises:
        FixableError: there is no such experiment.
        FixableError: it has no such run.
    """
    found = []
    for given in list(names_given) or names():
        name, _, run = given.partition(".")
        experiment = find(name)
        if run and run not in experiment.runs:
            raise FixableError(f"{name} has no run {run!r}; it has: {', '.join(experiment.runs)}")
        chosen = [run] if run else list(experiment.runs)
        found += [Wanted(name, one) for one in chosen]
    return found


def simulate(runs: Sequence[Wanted], num_workers: int = 2) -> list[SimulatedRun]:
    """Simulate runs, each in a process of its own."""
    jobs = {one: Job(partial(_run, one), one.unsimulated) for one in runs}
    with closing(finished(jobs, num_workers, "runs simulated")) as results:
        found = dict(results)
    return [found[one] for one in runs]


def _run(wanted: Wanted) -> SimulatedRun:
    """Simulate the ranks of a run that differ, in this process."""
    from torch._subclasses import fake_tensor

    _print_nothing()
    try:
        _check(wanted.plan)
        logs = _logs(wanted)
    except UnsimulatedError as error:
        return wanted.unsimulated(str(error), has_failed=False)
    except (
        fake_tensor.DynamicOutputShapeException,
        fake_tensor.DataDependentOutputException,
    ) as error:
        reason = f"what it does follows from values of tensors ({error})"
        return wanted.unsimulated(reason, has_failed=False)
    except BaseException as error:  # noqa: BLE001 whatever it was, the run cannot be simulated
        traceback.print_exc()
        said = str(error).strip().splitlines()
        message = said[0][:MOST_CHARACTERS] if said else ""
        return wanted.unsimulated(f"{type(error).__name__}: {message}".rstrip(": "))
    return SimulatedRun(
        **wanted._asdict(),
        ranks=[logs[rank] for rank in sorted(logs)],
        like_first=[rank for rank in range(wanted.plan.world_size) if rank not in logs],
    )


def _check(plan: RunPlan) -> None:
    """Refuse what no simulation can do.

    Raises:
        UnsimulatedError: says why.
    """
    if plan.follows is not None:
        raise UnsimulatedError(f"it works with what was measured of {plan.follows}")
    if how := TAKE_OTHERS.get(plan.expected):
        said = f"its ranks are meant to {how}, which takes ranks that meet each other"
        raise UnsimulatedError(said)


def _logs(wanted: Wanted) -> dict[int, RankLog]:
    """The logs of the first and the last rank; of all, where these two differ or wait for others.

    Raises:
        UnsimulatedError: the run cannot be simulated.
    """
    from runners.simulate.objects import NotSentError, Sent
    from runners.simulate.one_rank import simulate_rank

    plan, experiment = wanted.plan, find(wanted.experiment)
    last = plan.world_size - 1
    logs: dict[int, RankLog] = {}
    ranks, sent = {0, last}, Sent()
    while missing := ranks - logs.keys():
        num_sent = len(sent)
        for rank in sorted(missing):
            _limit(MOST_SECONDS)
            with suppress(NotSentError):
                logs[rank] = simulate_rank(experiment, plan, rank, sent)
        is_whole = ranks <= logs.keys()
        if is_whole and logs[0].without_places() == logs[last].without_places():
            break
        if not is_whole and ranks == {*range(plan.world_size)} and len(sent) == num_sent:
            raise UnsimulatedError("its ranks wait for objects of each other")
        ranks = {*range(plan.world_size)}
    return logs


def _print_nothing() -> None:
    """Print nothing, and compute on one core."""
    import torch

    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    if not os.environ.get("PROOFBOOK_STDERR"):
        os.dup2(nothing, 2)
    torch.set_num_threads(1)


def _limit(most_seconds: float) -> None:
    """End this process after so many seconds of its processor time from now on."""
    most = int(most_seconds + time.process_time()) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.getrlimit(resource.RLIMIT_CPU)[1]))
