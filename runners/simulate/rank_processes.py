"""The ranks of one run, each simulated in a process of its own, and what they send each other.

In: a run. Out: the logs of the ranks that differ, or why there are none. What a strategy leaves in
torch ends with the process of its rank, and a crash or an endless loop costs that run alone. A rank
that waits for an object of another is simulated again once the others have come further.
"""

from __future__ import annotations

import gc
import importlib
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from runners.plans.experiment import RunPlan, find
from runners.ranks.process import preload
from runners.simulate.fake_mode import ValuelessMode
from runners.simulate.log import RankLog, SimulatedRun
from runners.simulate.messages import BlockedError, Sent
from runners.simulate.one_rank import simulate_rank
from runners.simulate.stand_ins import UnsimulatedError
from runners.simulate.suite import TAKE_OTHERS, Wanted

# Processor seconds of one rank: a program that waits for a value to change never ends.
MOST_SECONDS = 60
MOST_SECONDS_OF_A_PROGRAM = 15
MOST_WALL_SECONDS = 1200.0  # of all ranks, for one that waits without computing
MOST_CHARACTERS = 160  # of a message that is not ours


def prepare() -> None:
    """Load what ranks use, once, before any is forked."""
    preload()
    importlib.import_module("torch.distributed.optim")  # scripts functions, which takes long
    importlib.import_module("torch.distributed.pipelining")
    with ValuelessMode():
        layer = torch.nn.Linear(4, 4)
        update = torch.optim.Adam(layer.parameters(), fused=True)
        layer(torch.ones(2, 4))
        # No backward pass: on a torch with devices it starts threads, and after that no process
        # forked from this one can take one. Under fake tensors a build for CUDA has a device.
        for parameter in layer.parameters():
            parameter.grad = torch.ones_like(parameter)
        update.step()
    gc.collect()
    gc.freeze()  # no later collection looks at what was loaded


def simulate_run(wanted: Wanted) -> SimulatedRun:
    """Simulate the ranks of a run that differ."""
    start = time.monotonic()
    logs: dict[int, RankLog] = {}
    reason, has_failed = None, False
    try:
        _check(wanted.plan)
        logs = _logs(wanted, start + MOST_WALL_SECONDS)
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


def _logs(wanted: Wanted, deadline: float) -> dict[int, RankLog]:
    """The logs of the first and the last rank; of all, where these two differ or wait for others.

    Raises:
        UnsimulatedError: the run cannot be simulated.
    """
    every, last = set(range(wanted.plan.world_size)), wanted.plan.world_size - 1
    logs: dict[int, RankLog] = {}
    ranks, sent = {0, last}, Sent()
    while missing := ranks - logs.keys():
        num_sent = len(sent)
        for rank in sorted(missing):
            log, sent = _in_a_process(wanted, rank, sent, deadline)
            if log is not None:
                logs[rank] = log
        if ranks <= logs.keys():
            is_alike = logs[0].without_places() == logs[last].without_places()
            ranks = ranks if is_alike else every
        elif len(sent) == num_sent:  # nobody has come further
            if ranks == every:
                raise UnsimulatedError("its ranks wait for objects of each other")
            ranks = every
    return logs


def _in_a_process(
    wanted: Wanted, rank: int, sent: Sent, deadline: float
) -> tuple[RankLog | None, Sent]:
    """The log of a rank, or None where it waits for an object; and what ranks have sent by then.

    Raises:
        UnsimulatedError: it cannot be simulated, it has failed, or it does not end.
    """
    ours, theirs = Pipe()
    sys.stdout.flush()
    with warnings.catch_warnings():
        # Python warns of threads beside a fork; they hold no lock of ours.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            _be_rank(wanted, rank, sent, theirs)
        finally:
            os._exit(0)  # past whatever waits for its exit
    theirs.close()
    try:
        if not ours.poll(max(0.0, deadline - time.monotonic())):
            raise UnsimulatedError("it does not end", has_failed=True)
        log, reason, has_failed, sent = ours.recv()
    except EOFError:
        _, status = os.waitpid(pid, 0)
        number = os.WTERMSIG(status)
        ended = f"its process ended by signal {number}"
        reason = "it does not end" if number == signal.SIGXCPU else ended
        raise UnsimulatedError(reason, has_failed=True) from None
    finally:
        ours.close()
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    if reason is not None:
        raise UnsimulatedError(reason, has_failed=has_failed)
    return log, sent


def _be_rank(wanted: Wanted, rank: int, sent: Sent, connection: Connection) -> None:
    """Simulate one rank in this process, and say what came of it."""
    _be_quiet(MOST_SECONDS_OF_A_PROGRAM if wanted.plan.strategy == "program" else MOST_SECONDS)
    log, reason, has_failed = None, None, False
    try:
        log = simulate_rank(find(wanted.experiment), wanted.plan, rank, sent, wanted.device)
    except BlockedError:
        pass
    except UnsimulatedError as error:
        reason = str(error)
    except (DynamicOutputShapeException, DataDependentOutputException) as error:
        reason = f"what it does follows from values of tensors ({error})"
    except BaseException as error:  # noqa: BLE001 whatever it was, the run cannot be simulated
        traceback.print_exc()
        said = str(error).strip().splitlines()
        message = said[0][:MOST_CHARACTERS] if said else ""
        reason, has_failed = f"{type(error).__name__}: {message}".rstrip(": "), True
    connection.send((log, reason, has_failed, sent))


def _be_quiet(most_seconds: float) -> None:
    """Print nothing, and end at a signal at once: this process is no command."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    if not os.environ.get("PROOFBOOK_STDERR"):
        os.dup2(nothing, 2)
    torch.set_num_threads(1)
    most = int(most_seconds + time.process_time()) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.getrlimit(resource.RLIMIT_CPU)[1]))
