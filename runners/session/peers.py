"""The processes that torchrun started, of which each watches the others and says which is lost.

In: torchrun's variables and its store, which its agent on node 0 keeps. Out: `put` and `get`,
values that all processes share through that store, and a watch. torchrun ends the processes of its
own node when one of them fails; that another node or a torchrun itself is gone it does not tell. So
each process sets a heartbeat in the store: one whose heartbeat stops is lost, one whose store does
not answer has lost node 0, and one whose torchrun died has another parent. The first process that
notices writes which node is lost and why, the others read that, and each ends. torchrun repeats the
line as the cause.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from proofbook.runners.core.system import processes
from proofbook.runners.system import stopping
from proofbook.runners.system.progress_lines import Patience, say

# Torchrun's variables of a `Worker`, in the order of its fields.
NUMBERS = (
    "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_PORT",
)  # fmt: skip
LOST = 3  # exit code: a node was lost
POLL_SECONDS = 0.2  # between two reads of the store
SILENT_SECONDS = 15.0  # a process that sets no heartbeat this long is lost
MEET_SECONDS = 120.0  # until its first: torchrun has started it, and it loads torch
TELL_SECONDS = 2.0  # the longest that a process waits for the store to take why it ends
STORE_SECONDS = timedelta(seconds=20)  # for torchrun's store, which has just answered torchrun
LINGER_SECONDS = 30.0  # torchrun waits for minutes where no packet reaches its own store


class Worker(NamedTuple):
    """One of the processes that torchrun started: its rank, its node, and the store's address."""

    rank: int  # of the whole
    world_size: int
    num_local: int  # ranks on this node
    node: int
    num_nodes: int
    port: int  # of the store
    host: str  # of rank 0's node, which keeps the store

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Worker:
        """A `Worker` from torchrun's variables; ValueError where torchrun has not set them."""
        try:
            numbers = (int(environment[name]) for name in NUMBERS)
            return cls._make([*numbers, environment["MASTER_ADDR"]])
        except KeyError as error:
            raise ValueError(
                f"{error} is not set; start it on each node with `torchrun --nnodes 2 … "
                "-m runners.cluster EXPERIMENT.RUN`"
            ) from None


def explain(line: str) -> None:
    """Print why this process fails, and write it where torchrun reads the cause."""
    say(line)
    if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        with suppress(OSError):
            Path(path).write_text(json.dumps({"message": line, "timestamp": int(time.time())}))


def _address_towards(host: str, port: int) -> str:
    """This machine's address on the interface that leads to a host; nothing is sent."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as unconnected:
        unconnected.connect(address)
        return str(unconnected.getsockname()[0])


class Peers:
    """The values that one process shares with the others, and its watch over them."""

    def __init__(self, worker: Worker, facts: Mapping[str, object]) -> None:
        """Meet the other processes; `facts` then has those of all, in the order of ranks."""
        self.worker = worker
        self._torchrun = os.getppid()
        self._names = {worker.rank: f"node {worker.node} ({socket.gethostname()})"}
        self._answered = time.monotonic()  # when the store last did
        until = self._answered + MEET_SECONDS - SILENT_SECONDS
        others = [rank for rank in range(worker.world_size) if rank != worker.rank]
        # Of each other rank its heartbeat, and since when that is what it is.
        self._heard = dict.fromkeys(others, (b"", until))
        self.is_over = False  # a process that leaves from now on is not lost
        self._ending = threading.RLock()
        store = TCPStore(worker.host, worker.port, timeout=STORE_SECONDS, wait_for_workers=False)
        self._store: Store = PrefixStore("proofbook", store)
        address = _address_towards(worker.host, worker.port)
        own = {**facts, "node": self.name(worker.rank), "address": address}
        self.put(f"facts/{worker.rank}", own)
        for loop in (self._beat, self._watch):
            threading.Thread(target=loop, daemon=True).start()
        everybody = range(worker.world_size)
        self.facts = [self.get(f"facts/{rank}", rank) for rank in everybody]
        self._names = {rank: self.facts[rank]["node"] for rank in everybody}
        # Node 0 may know itself by a name that means its loopback: what leads to another does not.
        there = [facts["address"] for facts in self.facts if facts["node"] != own["node"]]
        leads = worker.node == 0 and there
        self.address = _address_towards(there[0], worker.port) if leads else address

    def name(self, rank: int) -> str:
        """The node of a rank: its number and its host."""
        return self._names.get(rank, f"the node of rank {rank}")

    def put(self, key: str, value: object) -> None:
        """Put a value, as JSON, where every other process can read it by name."""
        self._store.set(key, json.dumps(value))

    def get(self, key: str, rank: int) -> Any:  # noqa: ANN401
        """The JSON value of a key, once `rank` has put it; prints every 5 s who is awaited."""
        patience = Patience()
        while not self._store.check([key]):
            time.sleep(POLL_SECONDS)
            here, there = self.name(self.worker.rank), self.name(rank)
            patience.tell(f"{here}: waiting for {there} ({{}}): {key}")
        return json.loads(self._store.get(key))

    def leave(self) -> None:
        """Leave without being lost; rank 0, whose torchrun keeps the store, leaves last.

        torchrun's own barrier at exit does the same, but only where all ranks exit with 0.
        """
        self.is_over = True
        self.put(f"left/{self.worker.rank}", None)
        everybody = [f"left/{rank}" for rank in range(self.worker.world_size)]
        end = time.monotonic() + SILENT_SECONDS
        while self.worker.rank == 0 and time.monotonic() < end and not self._store.check(everybody):
            time.sleep(POLL_SECONDS)

    def lose(self, what: str, code: int = LOST) -> NoReturn:
        """Print what is lost, tell the others, and end this process with all that it started.

        Call it from any thread: the store or a rank may keep the main thread waiting.
        """
        with self._ending:  # one reason is enough: a thread with another one waits here for the end
            put = threading.Thread(target=self._put_lost, args=(what,), daemon=True)
            put.start()
            put.join(TELL_SECONDS)
            explain(what)
            time.sleep(3 * POLL_SECONDS)  # the store goes with node 0: the others read it first
            for clean in reversed(tuple(stopping.at_end)):
                clean()
            _end_later(self._torchrun)
            os._exit(code)

    def _put_lost(self, what: str) -> None:
        with suppress(RuntimeError):  # the store is gone, too
            self.put("lost", what)

    def _beat(self) -> None:
        """Set this process's heartbeat, and read those of the others, for `_watch`.

        The store may keep this thread waiting for ever.
        """
        number = 0
        try:
            while not self.is_over:
                number += 1
                self._store.set(f"beat/{self.worker.rank}", str(number))
                for rank, (before, _) in self._heard.items():
                    key = f"beat/{rank}"
                    beat = self._store.get(key) if self._store.check([key]) else before
                    if beat != before:
                        self._heard[rank] = (beat, time.monotonic())
                if self._store.check(["lost"]):
                    self.lose(json.loads(self._store.get("lost")))
                self._answered = time.monotonic()
                time.sleep(POLL_SECONDS)
        except RuntimeError:
            if not self.is_over:
                self.lose(f"{self.name(0)} is lost: its torchrun, which keeps the store, ended")

    def _watch(self) -> None:
        """End this process where another one, the store or its own torchrun is lost."""
        why = (
            f"silent for {SILENT_SECONDS:.0f} s; its process or machine ended, or its link is down"
        )
        while not self.is_over:
            time.sleep(POLL_SECONDS)
            if os.getppid() != self._torchrun:
                self.lose(f"{self.name(self.worker.rank)} is lost: its torchrun ended")
            if time.monotonic() - self._answered > SILENT_SECONDS:
                self.lose(f"{self.name(0)} is lost: its store has been {why}")
            for rank, (_, since) in tuple(self._heard.items()):
                if self._answered - since > SILENT_SECONDS and not self.is_over:
                    self.lose(f"{self.name(rank)} is lost: it has been {why}")


def _end_later(pid: int) -> None:
    """Fork a process that kills torchrun unless it soon ends by itself."""
    started = processes.start_ticks(pid) or 0
    if os.fork():
        return
    os.setsid()  # torchrun ends the group of the process that leaves
    os.closerange(0, os.sysconf("SC_OPEN_MAX"))
    end = time.monotonic() + LINGER_SECONDS
    while processes.lives(pid, started) and time.monotonic() < end:
        time.sleep(POLL_SECONDS)
    if processes.lives(pid, started):
        os.kill(pid, signal.SIGKILL)
    os._exit(0)
