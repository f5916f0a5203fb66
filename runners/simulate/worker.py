"""A worker: forks a process for each run, which simulates its ranks one after another.

In: the name of a run. Out: its `SimulatedRun`. A rank that waits for an object of another is
simulated again after the others, until all are through.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import resource
import select
import signal
import sys
import time
import warnings
from contextlib import suppress

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from runners.plans.experiment import Experiment, RunPlan, find, on_device
from runners.ranks.process import preload
from runners.simulate.fake_mode import ValuelessMode
from runners.simulate.log import TAKE_OTHERS, RankLog, SimulatedRun
from runners.simulate.messages import BlockedError, Sent
from runners.simulate.one_rank import simulate_rank
from runners.simulate.stand_ins import UnsimulatedError

# Processor seconds of one run: a program that waits for a value to change never ends.
MOST_SECONDS = 60
MOST_WALL_SECONDS = 1200.0  # for one that waits without computing
READ_BYTES = 1 << 16
Answer = dict[int, RankLog] | str  # the logs of the ranks that differ, or why there are none


def prepare() -> None:
    """Load what ranks use, once, before any is forked."""
    preload()
    importlib.import_module("torch.distributed.optim")  # scripts functions, which takes long
    importlib.import_module("torch.distributed.pipelining")
    with ValuelessMode():
        layer = torch.nn.Linear(4, 4)
        update = torch.optim.Adam(layer.parameters(), fused=True)
        layer(torch.ones(2, 4)).sum().backward()
        update.step()
    gc.collect()
    gc.freeze()  # no later collection looks at what was loaded


def simulate_run(experiment_name: str, run: str, device: str = "cpu") -> SimulatedRun:
    """Simulate the ranks of a run that differ, in a process of their own.

    The first and the last are simulated; where they come out equal, so do those between.

    Args:
        experiment_name: whose run it is.
        run: its name.
        device: `cpu` or `cuda`, on which experiments may grow.
    """
    start = time.monotonic()
    experiment = on_device(find(experiment_name), device)
    plan = experiment.runs[run]
    answer: Answer = _refused(plan) or _in_a_process(experiment, plan, device)
    logs = {} if isinstance(answer, str) else answer
    return SimulatedRun(
        experiment=experiment_name,
        run=run,
        ranks=[logs[rank] for rank in sorted(logs)],
        like_first=[rank for rank in range(plan.world_size) if logs and rank not in logs],
        reason=answer if isinstance(answer, str) else None,
        seconds=round(time.monotonic() - start, 3),
    )


def _refused(plan: RunPlan) -> str:
    """Why a run is not tried; empty where it is."""
    how = TAKE_OTHERS.get(plan.expected)
    if how is not None:
        return f"its ranks are meant to {how}, which takes ranks that meet each other"
    return ""


def _in_a_process(experiment: Experiment, plan: RunPlan, device: str) -> Answer:
    """What a process answers that simulates this run and nothing else."""
    receiving, sending = os.pipe()
    sys.stdout.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads beside, which hold no lock
        child = os.fork()
    if child == 0:
        try:
            os.close(receiving)
            _be_quiet()
            _write(sending, _answered(experiment, plan, device))
        finally:
            os._exit(0)  # past whatever the strategy has registered for an exit
    os.close(sending)
    try:
        written = _all_of(receiving, time.monotonic() + MOST_WALL_SECONDS)
    finally:
        os.close(receiving)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    is_too_long = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
    if written is None or (not written and is_too_long):
        return "it does not end"
    if not written:
        return f"its process ended by signal {os.WTERMSIG(status)}"
    answer: Answer = pickle.loads(written)
    return answer


def _answered(experiment: Experiment, plan: RunPlan, device: str) -> Answer:
    try:
        return _simulated_ranks(experiment, plan, device)
    except UnsimulatedError as error:
        return str(error)
    except (DynamicOutputShapeException, DataDependentOutputException) as error:
        return f"what it does follows from values of tensors ({error})"
    except BaseException as error:  # noqa: BLE001 whatever it was, the run cannot be simulated
        if os.environ.get("PROOFBOOK_STDERR"):
            import traceback

            traceback.print_exc()
        said = str(error).strip().splitlines()
        return f"{type(error).__name__}: {said[0][:160] if said else ''}".rstrip(": ")


def _simulated_ranks(experiment: Experiment, plan: RunPlan, device: str) -> dict[int, RankLog]:
    """The logs of the ranks that differ.

    Raises:
        UnsimulatedError: each rank waits for an object of another.
        Exception: whatever a rank raises.
    """
    sent: Sent = {}
    logs: dict[int, RankLog] = {}
    last = plan.world_size - 1
    waiting, descends = sorted({0, last}), True
    while waiting:
        before, num_blocked = len(sent) + len(logs), 0
        for rank in waiting:
            try:
                logs[rank] = simulate_rank(experiment, plan, rank, sent, device)
            except BlockedError:
                num_blocked += 1
        if len(sent) + len(logs) == before:
            raise UnsimulatedError("its ranks wait for objects of each other")
        if not num_blocked and _are_alike(logs[0], logs[last]):
            break
        descends = not descends  # objects travel up the ranks, and down again
        waiting = sorted(set(range(plan.world_size)) - set(logs), reverse=descends)
    return logs


def _are_alike(first: RankLog, last: RankLog) -> bool:
    return first.model_copy(update={"rank": last.rank}) == last


def _be_quiet() -> None:
    """Print nothing, and end at a signal at once: this process is no command."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    if not os.environ.get("PROOFBOOK_STDERR"):
        os.dup2(nothing, 2)
    torch.set_num_threads(1)
    most = MOST_SECONDS + int(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _write(sending: int, answer: Answer) -> None:
    written = memoryview(pickle.dumps(answer))
    while written:
        written = written[os.write(sending, written) :]


def _all_of(receiving: int, deadline: float) -> bytes | None:
    """What comes through a pipe until it is closed; None where that takes too long."""
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([receiving], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        part = os.read(receiving, READ_BYTES)
        if not part:
            return b"".join(parts)
        parts.append(part)
