"""How quiet the machine is: the load of other processes, and three canaries.

In: nothing. Out: a `Reading`, which takes about a second; of two readings, a `Quiet` for the trace.
While a reading is taken nothing of ours runs, so that all load is of other processes. A canary is a
small, fixed piece of work whose best time should not change: a matrix product on one core, a copy
larger than a core's own caches, and messages between two processes over loopback. Load shows that
others compete for the cores. The canaries also show what no load tells of: a virtual machine that
gets less of its host, a processor that has become hot, a cache that others keep busy. On a quiet
virtual machine of two cores, successive readings differed by at most 0.7 % (compute), 4.1 % (copy)
and 0.8 % (messages).
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from runners.system.errors import FixableError
from runners.traces.quiet_record import MOST_LOAD_SHARE, Canary, Quiet

PROC = Path("/proc")
LOAD_SECONDS = 0.25
GLANCE_SECONDS = 0.1  # enough to see a plainly busy machine
PLAINLY_BUSY_SHARE = 0.25  # of the cores, used by others: far beyond what counts as quiet
CANARY_SECONDS = 0.22
PATIENCE_SECONDS = 60.0
LOOK_EVERY_SECONDS = 5.0
MOST_RETRIES = 2  # of an experiment that was not quiet, for the reference set
MATRIX_WIDTH = 384
COPY_BYTES = 2 << 20
MESSAGE = bytes(64)
MESSAGES_IN_A_BATCH = 10
NUM_NAMED = 3  # processes
KERNEL_THREADS = "2"  # the parent of each
ECHO_STARTS_SECONDS = 30.0
# Waits for each message and sends it back. Without site-packages it starts in some 20 ms.
ECHO = """\
import socket, sys
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while received := peer.recv(64):
    peer.sendall(received)
"""


class NotIdleError(FixableError, RuntimeError):
    """Other processes keep the machine busy; the message names them, in one line."""


class NotQuietError(RuntimeError):
    """An experiment was disturbed while it was measured for the reference set.

    Attributes:
        cause: one line, with the experiment's name.
    """

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


@dataclass(frozen=True)
class Load:
    """What other processes used over a short window.

    Attributes:
        share: of all cores, 0 to 1; None where the platform does not tell.
        names: the processes that used most, the busiest first; a name for each.
    """

    share: float | None
    names: tuple[str, ...] = ()

    @property
    def is_low(self) -> bool:
        """Whether the machine counts as idle."""
        return self.share is None or self.share <= MOST_LOAD_SHARE


@dataclass(frozen=True)
class Reading:
    """The machine at one moment: the load of others, and the best time of each canary."""

    load_share: float | None
    canaries: Mapping[str, float]

    def until(self, after: Reading) -> Quiet:
        """What a trace records of this reading and a later one."""
        canaries = {
            name: Canary(before_seconds=seconds, after_seconds=after.canaries[name])
            for name, seconds in self.canaries.items()
            if name in after.canaries
        }
        return Quiet.of((self.load_share, after.load_share), canaries)


class Watch:
    """Takes a reading before and after each experiment; one's last is the next one's first."""

    def __init__(
        self,
        take: Callable[[], Reading] | None = None,
        look: Callable[[], Load] | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Look at this machine, or through the given eyes.

        Args:
            take: takes a reading.
            look: reads the load alone.
            patience_seconds: how long to wait for an idle machine.
        """
        self._take = take or reading
        self._look = look or load
        self._patience_seconds = patience_seconds
        self._last: Reading | None = None

    def wait_until_idle(self, say: Callable[[str], None]) -> None:
        """Wait up to a minute while other processes use the machine.

        Args:
            say: takes a line of progress each time that the machine was busy.

        Raises:
            NotIdleError: it is busy after that, too.
        """
        until = time.monotonic() + self._patience_seconds
        while not (found := self._look()).is_low:
            left = until - time.monotonic()
            if left <= 0:
                raise NotIdleError(
                    f"the machine is not quiet: {in_words(found)}; stop what runs there, and start "
                    "this command again"
                )
            say(f"waiting for a quiet machine, at most {left:.0f} s more: {in_words(found)}")
            time.sleep(min(LOOK_EVERY_SECONDS, left))

    def begin(self) -> Reading:
        """The reading before an experiment."""
        if self._last is None:
            self._last = self._take()
        return self._last

    def end(self, before: Reading) -> Quiet:
        """Take the reading after an experiment; what its trace records."""
        self._last = self._take()
        return before.until(self._last)

    def forget(self) -> None:
        """Take the next reading anew: something else ran since the last one."""
        self._last = None


def reading() -> Reading:
    """Read the machine. The load comes last, when what ran before has really ended.

    A canary that the platform refuses is left out. A plainly busy machine is read by its load
    alone: canaries could not make it quiet, and take many times as long there.
    """
    busy = load(GLANCE_SECONDS).share
    if busy is not None and busy > PLAINLY_BUSY_SHARE:
        return Reading(round(busy, 4), {})
    canaries = {}
    for canary in (compute, copy, messages):
        with suppress(OSError):
            canaries[canary.__name__] = round(canary(), 9)
    share = load().share
    return Reading(None if share is None else round(share, 4), canaries)


def load(seconds: float = LOAD_SECONDS, proc: Path = PROC) -> Load:
    """What others use while this process sleeps.

    Args:
        seconds: how long to look.
        proc: the kernel's folder of processes.
    """
    before, busy_before = _times(proc), _of_processes(proc)
    if before is None:
        return Load(None)
    time.sleep(seconds)
    after, busy_after = _times(proc), _of_processes(proc)
    if after is None or after.total <= before.total:
        return Load(None)
    share = (after.busy - before.busy) / (after.total - before.total)
    spent = {
        pid: (ticks - busy_before.get(pid, ("", 0))[1], name)
        for pid, (name, ticks) in busy_after.items()
        if pid != os.getpid()
    }
    busiest = sorted((one for one in spent.values() if one[0] > 0), reverse=True)
    return Load(min(max(share, 0.0), 1.0), tuple(dict.fromkeys(n for _, n in busiest))[:NUM_NAMED])


@dataclass(frozen=True)
class _Ticks:
    """The kernel's count of time over all cores, in ticks."""

    total: int
    busy: int


def _times(proc: Path) -> _Ticks | None:
    """Time of all cores since boot; None where the platform does not tell.

    Time that the host took from a virtual machine ("steal") was used by others, too.
    """
    try:
        words = (proc / "stat").read_text(encoding="ascii").split("\n", 1)[0].split()
        user, nice, system, idle, iowait, irq, softirq, steal = map(int, words[1:9])
    except (OSError, ValueError):
        return None
    busy = user + nice + system + irq + softirq + steal
    return _Ticks(busy + idle + iowait, busy)


def _of_processes(proc: Path) -> dict[int, tuple[str, int]]:
    """The name of each process, and the ticks that it has used."""
    return dict(_each_process(proc))


def _each_process(proc: Path) -> Iterator[tuple[int, tuple[str, int]]]:
    for folder in proc.glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it has ended meanwhile
        name = text[text.index("(") + 1 : text.rindex(")")]
        fields = text[text.rindex(")") + 2 :].split()
        if fields[1] == KERNEL_THREADS:
            continue  # nobody can stop it
        printable = "".join(c if c.isprintable() else "?" for c in name)
        yield int(folder.name), (printable, int(fields[11]) + int(fields[12]))


def best_of(work: Callable[[], object], seconds: float = CANARY_SECONDS) -> float:
    """The shortest time of many calls, in seconds."""
    work()
    best, until = float("inf"), time.perf_counter() + seconds
    while (start := time.perf_counter()) < until:
        work()
        best = min(best, time.perf_counter() - start)
    return best


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch compute on one core, as ranks do."""
    import torch

    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def compute() -> float:
    """The best time of a matrix product that fits the caches, in seconds."""
    import torch

    with _one_thread():
        factor = torch.full((MATRIX_WIDTH, MATRIX_WIDTH), 1 / MATRIX_WIDTH)
        product = torch.empty_like(factor)
        return best_of(lambda: torch.mm(factor, factor, out=product))


def copy() -> float:
    """The best time of a copy that a core's own caches cannot hold, in seconds.

    The copy runs through the cache that cores share. A copy through main memory would say more, but
    on a virtual machine its best time changes with the neighbours on the host: on the reference
    machine by up to 28 % between two readings, while nothing else ran there.
    """
    import torch

    with _one_thread():
        source = torch.ones(COPY_BYTES, dtype=torch.uint8)
        target = torch.ones_like(source)
        return best_of(lambda: target.copy_(source))


def messages() -> float:
    """The best time of a message to another process and back, in seconds, over loopback.

    Both share one core where the platform lets us say so: a message is then two switches between
    processes and two ways through the kernel. Across idle cores the same message takes three times
    as long or not, as the host wakes a halted virtual core, and says nothing of other processes.

    Raises:
        OSError: there is no loopback, or no other process.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(ECHO_STARTS_SECONDS)
        command = [sys.executable, "-I", "-S", "-c", ECHO, str(server.getsockname()[1])]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as echo:
            try:
                peer, _ = server.accept()
                with peer, _on_one_core(echo.pid):
                    return _best_message(peer)
            finally:
                echo.kill()


@contextmanager
def _on_one_core(pid: int) -> Iterator[None]:
    """Keep this thread and another process on one core meanwhile."""
    if not (hasattr(os, "sched_getaffinity") and hasattr(os, "sched_setaffinity")):
        yield
        return
    allowed = os.sched_getaffinity(0)
    try:
        for one in (pid, 0):
            os.sched_setaffinity(one, {min(allowed)})
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _best_message(peer: socket.socket) -> float:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def to_and_fro() -> None:
        for _ in range(MESSAGES_IN_A_BATCH):
            peer.sendall(MESSAGE)
            peer.recv(len(MESSAGE))

    return best_of(to_and_fro) / MESSAGES_IN_A_BATCH


def in_words(found: Load) -> str:
    """Who uses how much."""
    who = ", ".join(found.names) or "none of which this system shows"
    return f"other processes use {found.share or 0:.0%} of the cores ({who})"
