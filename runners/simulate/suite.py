"""Runs of experiments, each simulated rank by rank. No torch here.

In: which runs. Out: a `SimulatedRun` each. Runs that differ only in what no simulation follows from
are simulated once. Every rank has a process of its own: what a strategy leaves in torch ends with
it, and a crash or an endless loop costs that run alone. A rank that waits for an object of another
is simulated again once the others have come further.
"""

from __future__ import annotations

import os
import resource
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from runners.plans.experiment import RunPlan, find
from runners.simulate.log import RankLog, Sent, SimulatedRun, UnsimulatedError
from runners.simulate.processes import Job, in_a_process, results
from runners.simulate.wanted import TAKE_OTHERS, Wanted

NUM_WORKERS = 2
# Processor seconds of one rank: a program that waits for a value to change never ends.
MOST_SECONDS = 60
MOST_SECONDS_OF_A_PROGRAM = 15
MOST_WALL_SECONDS = 1200.0  # of a rank that waits without computing
MOST_CHARACTERS = 160  # of a message that is not ours


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
    jobs = [Job(one.key, partial(_run, one)) for one in wanted_runs]
    found, num_new = results(jobs, SimulatedRun, num_workers, folder, "runs simulated")
    named = [
        run.model_copy(update={"experiment": one.experiment, "run": one.run})
        for one, run in zip(wanted_runs, found, strict=True)
    ]
    return Simulated(named, num_new)


async def _run(wanted: Wanted) -> SimulatedRun:
    """Simulate the ranks of a run that differ."""
    start = time.monotonic()
    logs: dict[int, RankLog] = {}
    reason, has_failed = None, False
    try:
        _check(wanted.plan)
        logs = await _logs(wanted)
    except UnsimulatedError as error:
        reason, has_failed = str(error), error.has_failed
    return SimulatedRun(
        experiment=wanted.experiment,
        run=wanted.run,
        ranks=[logs[rank] for rank in sorted(logs)],
        like_first=[rank for rank in range(wanted.plan.world_size) if logs and rank not in logs],
        reason=reason,
        has_failed=has_failed,
        seconds=round(time.monotonic() - start, 3),
    )


def _check(plan: RunPlan) -> None:
    """Refuse what no simulation can do.

    Raises:
        UnsimulatedError: says why.
    """
    if plan.follows is not None:
        raise UnsimulatedError(f"it works with what was measured of {plan.follows}")
    if plan.expected in TAKE_OTHERS:
        how = TAKE_OTHERS[plan.expected]
        raise UnsimulatedError(
            f"its ranks are meant to {how}, which takes ranks that meet each other"
        )


async def _logs(wanted: Wanted) -> dict[int, RankLog]:
    """The logs of the first and the last rank; of all, where these two differ or wait for others.

    Raises:
        UnsimulatedError: the run cannot be simulated.
    """
    every, last = set(range(wanted.plan.world_size)), wanted.plan.world_size - 1
    logs: dict[int, RankLog] = {}
    ranks, sent, document = {0, last}, Sent(), wanted.as_json()
    while missing := ranks - logs.keys():
        num_sent = len(sent)
        for rank in sorted(missing):
            came = await in_a_process(_rank, document, rank, sent, most_seconds=MOST_WALL_SECONDS)
            if came.reason is not None:
                raise UnsimulatedError(came.reason, has_failed=came.has_failed)
            sent = came.sent
            if came.log is not None:
                logs[rank] = came.log
        if ranks <= logs.keys():
            is_alike = logs[0].without_places() == logs[last].without_places()
            ranks = ranks if is_alike else every
        elif len(sent) == num_sent:  # nobody has come further
            if ranks == every:
                raise UnsimulatedError("its ranks wait for objects of each other")
            ranks = every
    return logs


class _Came(NamedTuple):
    """What came of one rank; without a log and a reason, it waits for an object of another."""

    sent: Sent
    log: RankLog | None = None
    reason: str | None = None
    has_failed: bool = False


def _rank(document: dict[str, Any], rank: int, sent: Sent) -> _Came:
    """Simulate one rank in this process."""
    from torch._subclasses import fake_tensor

    from runners.simulate.messages import BlockedError
    from runners.simulate.one_rank import simulate_rank

    wanted = Wanted.from_json(document)
    _be_quiet(MOST_SECONDS_OF_A_PROGRAM if wanted.plan.strategy == "program" else MOST_SECONDS)
    try:
        log = simulate_rank(find(wanted.experiment), wanted.plan, rank, sent, wanted.device)
    except BlockedError:
        return _Came(sent)
    except UnsimulatedError as error:
        return _Came(sent, reason=str(error))
    except (
        fake_tensor.DynamicOutputShapeException,
        fake_tensor.DataDependentOutputException,
    ) as error:
        return _Came(sent, reason=f"what it does follows from values of tensors ({error})")
    except BaseException as error:  # noqa: BLE001 whatever it was, the run cannot be simulated
        traceback.print_exc()
        said = str(error).strip().splitlines()
        message = said[0][:MOST_CHARACTERS] if said else ""
        reason = f"{type(error).__name__}: {message}".rstrip(": ")
        return _Came(sent, reason=reason, has_failed=True)
    return _Came(sent, log)


def _be_quiet(most_seconds: float) -> None:
    """Print nothing, compute on one core, and end after so many seconds of it."""
    import torch

    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    if not os.environ.get("PROOFBOOK_STDERR"):
        os.dup2(nothing, 2)
    torch.set_num_threads(1)
    most = int(most_seconds + time.process_time()) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.getrlimit(resource.RLIMIT_CPU)[1]))
