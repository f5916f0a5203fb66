"""The processes that torchrun started, each watching the others: who is lost, and why.

    rank 1 ──TCP──┐
    rank 2 ──TCP──┤ rank 0 passes on what one of them says last
    rank 3 ──TCP──┘

In: torchrun's variables and its store. Out: `put` and `get`, values that all processes share
through that store, and a watch. A process that is killed closes its connection; one whose machine
or link is down sends no heartbeats; one whose torchrun died has another parent. The first process
that notices says which node is lost and why, tells the others, and each ends. torchrun repeats the
line as the cause.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from runners.system import processes, stopping
from runners.system.count import WORD_SECONDS

LOST = 3  # exit code: a node was lost
BEAT_SECONDS = 0.2
SILENT_SECONDS = 15.0  # a process that sends no heartbeat this long is lost
MEET_SECONDS = 120.0  # torchrun has started all processes: what is left is to load torch
LOOK_SECONDS = 0.1  # between two looks into the store
STORE_SECONDS = timedelta(seconds=20)  # for torchrun's store, which has just answered torchrun
LINGER_SECONDS = 30.0  # torchrun waits for minutes where no packet reaches its own store


class Place(NamedTuple):
    """Where this process stands among those that torchrun started."""

    rank: int  # of the whole
    world_size: int
    num_local: int  # ranks on this node
    node: int
    num_nodes: int
    host: str  # of rank 0's node, which keeps the store
    port: int  # of the store
    run: str

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Place:
        """As torchrun's variables say.

        Raises:
            ValueError: it is not torchrun that started this process.
        """
        try:
            return cls(
                int(environment["RANK"]),
                int(environment["WORLD_SIZE"]),
                int(environment["LOCAL_WORLD_SIZE"]),
                int(environment["GROUP_RANK"]),
                int(environment["GROUP_WORLD_SIZE"]),
                environment["MASTER_ADDR"],
                int(environment["MASTER_PORT"]),
                environment["TORCHELASTIC_RUN_ID"],
            )
        except KeyError as error:
            raise ValueError(
                f"{error} is not set; start it on each node with `torchrun --nnodes 2 … "
                "-m runners.cluster EXPERIMENT.RUN`"
            ) from None


def say(line: str) -> None:
    """Write a line to standard error, at once."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def explain(line: str) -> None:
    """Say why this process fails, and let torchrun show that as the cause, too."""
    say(line)
    if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        with suppress(OSError):
            Path(path).write_text(json.dumps({"message": line, "timestamp": int(time.time())}))


class Peers:
    """What one process shares with the others, and its watch over them."""

    def __init__(self, place: Place, facts: Mapping[str, object]) -> None:
        """Connect, and wait until all processes have.

        Args:
            place: where this process stands.
            facts: of this process, which the others see in `facts`, in the order of ranks.
        """
        self.place = place
        self.address = ""  # of this process on its link to the other nodes
        self._torchrun = os.getppid()
        self._names = {place.rank: f"node {place.node} ({socket.gethostname()})"}
        self._links: list[socket.socket] = []
        self.is_over = False  # who leaves from now on is not lost
        self._ending = threading.RLock()
        store = TCPStore(place.host, place.port, timeout=STORE_SECONDS, wait_for_workers=False)
        self._store: Store = PrefixStore("proofbook", store)
        threading.Thread(target=self._beat, daemon=True).start()
        self._meet()
        self.put(f"facts/{place.rank}", {**facts, "node": self.name(place.rank)})
        everybody = range(place.world_size)
        self.facts = [self.get(f"facts/{rank}", rank) for rank in everybody]
        self._names = {rank: self.facts[rank]["node"] for rank in everybody}

    def name(self, rank: int) -> str:
        """The node of a rank: its number and its host."""
        return self._names.get(rank, f"the node of rank {rank}")

    def put(self, key: str, value: object) -> None:
        """Share a value, JSON."""
        self._store.set(key, json.dumps(value))

    def has(self, *keys: str) -> bool:
        """Whether all of these are shared by now."""
        return self._store.check(list(keys))

    def get(self, key: str, rank: int) -> Any:  # noqa: ANN401
        """What a rank shares, now or later; says every five seconds whom it waits for."""
        start = said = time.monotonic()
        while not self.has(key):
            time.sleep(LOOK_SECONDS)
            if (now := time.monotonic()) - said > WORD_SECONDS:
                said, here = now, self.name(self.place.rank)
                say(f"{here}: waiting for {self.name(rank)} ({now - start:.0f} s): {key}")
        return json.loads(self._store.get(key))

    def leave(self) -> None:
        """Go without being missed; rank 0, which all others watch, goes last."""
        self.is_over = True
        self.put(f"left/{self.place.rank}", None)
        everybody = [f"left/{rank}" for rank in range(self.place.world_size)]
        end = time.monotonic() + SILENT_SECONDS
        while self.place.rank == 0 and not self.has(*everybody) and time.monotonic() < end:
            time.sleep(LOOK_SECONDS)
        for link in self._links:
            with suppress(OSError):  # the other side may have gone
                link.shutdown(socket.SHUT_RDWR)

    def lose(self, what: str, code: int = LOST) -> NoReturn:
        """Say what is lost, tell the others, and end this process with all that it started.

        Called from any thread: the store or a rank may keep the main thread waiting.
        """
        with self._ending:  # one reason is enough: who has another waits here for the end
            for link in tuple(self._links):
                with suppress(OSError):
                    link.sendall(f"{what}\n".encode())
            explain(what)
            for clean in reversed(tuple(stopping.at_end)):
                clean()
            _end_later(self._torchrun)
            os._exit(code)

    def _meet(self) -> None:
        """Connect rank 0's process with every other."""
        place = self.place
        if place.rank:
            port = self.get("watch", 0)
            try:
                link = socket.create_connection((place.host, port), SILENT_SECONDS)
            except OSError as error:
                self.lose(f"node 0 cannot be reached at {place.host}:{port}: {error}")
            link.sendall(f"{place.run} {place.rank}\n".encode())
            self._follow(link, link.makefile(encoding="utf-8"), 0)
            return
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        with socket.create_server(("", 0), family=family, dualstack_ipv6=dual) as server:
            server.settimeout(MEET_SECONDS)
            self.put("watch", server.getsockname()[1])
            while len(self._links) < place.world_size - 1:
                try:
                    self._admit(server.accept()[0])
                except TimeoutError:
                    self.lose(f"not all processes connected within {MEET_SECONDS:.0f} s")

    def _admit(self, link: socket.socket) -> None:
        """Follow a process of this run; whatever else connects is not one of us."""
        link.settimeout(SILENT_SECONDS)
        lines = link.makefile(encoding="utf-8", errors="replace")
        with suppress(OSError, ValueError):
            run, _, rank = lines.readline(1000).rstrip().rpartition(" ")
            if run == self.place.run:
                return self._follow(link, lines, int(rank))
        lines.close()
        return link.close()

    def _follow(self, link: socket.socket, lines: TextIO, rank: int) -> None:
        self.address = str(link.getsockname()[0]).removeprefix("::ffff:")
        self._links.append(link)
        threading.Thread(target=self._watch, args=(link, lines, rank), daemon=True).start()

    def _watch(self, link: socket.socket, lines: TextIO, rank: int) -> None:
        """Read what a process sends: empty lines, its heartbeats, or the reason why it ends."""
        why = "its process ended without a word"
        try:
            with link, lines:
                for line in lines:
                    if line.strip():
                        self.lose(line.strip())
        except TimeoutError:
            why = f"it has been silent for {SILENT_SECONDS:.0f} s; its machine or its link is down"
        except OSError:
            pass  # a process that dies with lines unread resets the connection
        if not self.is_over:
            self.lose(f"{self.name(rank)} is lost: {why}")

    def _beat(self) -> None:
        while not self.is_over:
            time.sleep(BEAT_SECONDS)
            if os.getppid() != self._torchrun:
                self.lose(f"{self.name(self.place.rank)} is lost: its torchrun ended")
            for link in tuple(self._links):
                with suppress(OSError):
                    link.sendall(b"\n")


def _end_later(pid: int) -> None:
    """Leave a process behind that ends torchrun unless it soon ends by itself."""
    started = processes.start_ticks(pid) or 0
    if os.fork():
        return
    os.setsid()  # torchrun ends the group of the process that leaves
    os.closerange(0, os.sysconf("SC_OPEN_MAX"))
    end = time.monotonic() + LINGER_SECONDS
    while processes.lives(pid, started) and time.monotonic() < end:
        time.sleep(LOOK_SECONDS)
    if processes.lives(pid, started):
        os.kill(pid, signal.SIGKILL)
    os._exit(0)
