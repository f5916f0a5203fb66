"""The ranks of one run, each in a process of its own, and the objects that they send each other.

In: a run. Out: the logs of the ranks that differ, or why there are none. A rank that waits for an
object of another waits in its process until this one passes the object on, so that no rank is
simulated twice.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from runners.plans.experiment import Experiment, RunPlan
from runners.simulate.messages import Key, Sent
from runners.simulate.one_rank import simulate_rank
from runners.simulate.stand_ins import UnsimulatedError
from runners.simulate.step_log import StepLog


@dataclass(frozen=True)
class Unsimulated:
    """Why there are no logs.

    Attributes:
        has_failed: by an error, a death or a limit of time, which another attempt may not meet;
            otherwise the run does what no simulation can.
    """

    reason: str
    has_failed: bool = False


Answer = dict[int, StepLog] | Unsimulated  # the logs of the ranks that differ
WAITS_FOR_EACH_OTHER = Unsimulated("its ranks wait for objects of each other")
ENDLESS = Unsimulated("it does not end", has_failed=True)


class _Asked(MutableMapping[Key, Any]):
    """The objects that ranks have sent, as one rank sees them; looking for one waits for it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._own: dict[Key, Any] = {}

    def __contains__(self, key: object) -> bool:
        if key not in self._own:
            self._connection.send(("take", key))
            self._own[cast("Key", key)] = self._connection.recv()
        return True

    def __getitem__(self, key: Key) -> Any:
        return self._own[key]

    def __setitem__(self, key: Key, value: Any) -> None:
        self._own[key] = value
        self._connection.send(("post", key, value))

    def __delitem__(self, key: Key) -> None:
        del self._own[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)


@dataclass
class _Process:
    """One rank that is being simulated.

    Attributes:
        waits_for: the object without which it cannot go on.
    """

    rank: int
    pid: int
    connection: Connection
    waits_for: Key | None = None


class RankProcesses:
    """Simulates the ranks of a run, and passes on what they send each other.

    Args:
        experiment: whose run it is.
        plan: the run.
        device: `cpu` or `cuda`.
        most_seconds: of processor time that a rank may take.
        deadline: of `time.monotonic`, for all ranks together.
    """

    def __init__(
        self,
        experiment: Experiment,
        plan: RunPlan,
        device: str,
        most_seconds: float,
        deadline: float,
    ) -> None:
        self._experiment, self._plan, self._device = experiment, plan, device
        self._most_seconds, self._deadline = most_seconds, deadline
        self._running: list[_Process] = []
        self._started: set[int] = set()
        self._sent: dict[Key, Any] = {}
        self._logs: dict[int, StepLog] = {}

    def answer(self) -> Answer:
        """The logs of the first and the last rank; of all, where these two differ."""
        every, last = range(self._plan.world_size), self._plan.world_size - 1
        try:
            reason = self._simulate({0, last})
            if reason is None and not _are_alike(self._logs[0], self._logs[last]):
                reason = self._simulate(set(every))
            return self._logs if reason is None else reason
        finally:
            for one in self._running:
                _end(one)

    def _simulate(self, ranks: set[int]) -> Unsimulated | None:
        """Simulate these ranks, and all, if one of them needs another; or why that cannot be."""
        self._start(ranks)
        while self._running:
            waiting = [one for one in self._running if one.waits_for is not None]
            if any(self._is_not_started(one.waits_for) for one in waiting):
                self._start(set(range(self._plan.world_size)))
            elif len(waiting) == len(self._running):
                return WAITS_FOR_EACH_OTHER
            reason = self._listen()
            if reason is not None:
                return reason
        return None

    def _is_not_started(self, key: Key | None) -> bool:
        return key is not None and key[0] not in self._started

    def _start(self, ranks: set[int]) -> None:
        for rank in sorted(ranks - self._started):
            self._started.add(rank)
            ours, theirs = Pipe()
            sys.stdout.flush()
            with warnings.catch_warnings():
                # Python warns of threads beside a fork; they hold no lock of ours.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if pid == 0:
                ours.close()
                self._be_rank(rank, theirs)
            theirs.close()
            self._running.append(_Process(rank, pid, ours))

    def _be_rank(self, rank: int, connection: Connection) -> None:
        """Simulate one rank in this process, and end it past whatever waits for its exit."""
        try:
            _be_quiet(self._most_seconds)
            connection.send(("end", *self._simulated(rank, cast("Sent", _Asked(connection)))))
        finally:
            os._exit(0)

    def _simulated(self, rank: int, sent: Sent) -> tuple[StepLog | None, Unsimulated | None]:
        """The log of a rank, or why there is none."""
        try:
            return simulate_rank(self._experiment, self._plan, rank, sent, self._device), None
        except UnsimulatedError as error:
            return None, Unsimulated(str(error))
        except (DynamicOutputShapeException, DataDependentOutputException) as error:
            return None, Unsimulated(f"what it does follows from values of tensors ({error})")
        except BaseException as error:  # noqa: BLE001 whatever it was, the run cannot be simulated
            if os.environ.get("PROOFBOOK_STDERR"):
                import traceback

                traceback.print_exc()
            said = str(error).strip().splitlines()
            reason = f"{type(error).__name__}: {said[0][:160] if said else ''}".rstrip(": ")
            return None, Unsimulated(reason, has_failed=True)

    def _listen(self) -> Unsimulated | None:
        """Take what the ranks say next; why the run cannot be simulated, if they say so."""
        by_connection = {one.connection: one for one in self._running}
        left = self._deadline - time.monotonic()
        ready = wait(list(by_connection), timeout=max(0.0, left))
        if not ready:
            return ENDLESS
        for connection in ready:
            reason = self._take_from(by_connection[cast("Connection", connection)])
            if reason is not None:
                return reason
        return None

    def _take_from(self, one: _Process) -> Unsimulated | None:
        try:
            said = one.connection.recv()
        except (EOFError, ConnectionError):
            return self._death(one)
        if said[0] == "post":
            self._post(said[1], said[2])
        elif said[0] == "take":
            self._take(one, said[1])
        else:
            _, log, reason = said
            if reason is not None:
                return cast("Unsimulated", reason)
            self._logs[one.rank] = log
            self._running.remove(one)
            _end(one)
        return None

    def _post(self, key: Key, value: Any) -> None:
        self._sent[key] = value
        for one in self._running:
            if one.waits_for == key:
                one.waits_for = None
                one.connection.send(value)

    def _take(self, one: _Process, key: Key) -> None:
        if key in self._sent:
            one.connection.send(self._sent[key])
        else:
            one.waits_for = key

    def _death(self, one: _Process) -> Unsimulated:
        self._running.remove(one)
        _, status = os.waitpid(one.pid, 0)
        one.connection.close()
        number = os.WTERMSIG(status)
        if number == signal.SIGXCPU:
            return ENDLESS
        return Unsimulated(f"its process ended by signal {number}", has_failed=True)


def _end(one: _Process) -> None:
    with suppress(ProcessLookupError):
        os.kill(one.pid, signal.SIGKILL)
    os.waitpid(one.pid, 0)
    one.connection.close()


def _are_alike(first: StepLog, last: StepLog) -> bool:
    return first.without_places() == last.without_places()


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
