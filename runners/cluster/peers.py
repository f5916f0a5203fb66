"""The processes of all nodes, connected with each other: who is there, who is waited for, who left.

    rank 1 ──TCP──┐
    rank 2 ──TCP──┤ rank 0 passes on what each process tells
    rank 3 ──TCP──┘

In: a `Place`, and torchrun's store, through which rank 0 tells its port; nothing else goes through
the store, whose operations cannot be interrupted. Out: `gather`, with which every process gets the
values of all, and a watch over the connections. A process that is killed closes its connection; a
link that goes silent carries no heartbeats; a process whose torchrun died sees another parent. Each
of these is a lost node: one line says which, every process hears it, and `on_lost` is called.

A thread of its own serves the connections, so the heartbeats go on whatever this process does. No
torch but the type of the store.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch._C._distributed_c10d import Store

BEAT_SECONDS = 1.0
WORD_SECONDS = 5.0  # the longest wait without a word
SILENT_SECONDS = 15.0  # a peer that sends no heartbeat this long is lost
STALLED_SECONDS = 3.0  # a watch this late was itself held up: it knows nothing about the others
MEET_SECONDS = 120.0  # torchrun has started all processes: what is left is to load torch
CLOSE_SECONDS = 2.0  # the longest that a last word may take to be sent
LOOK_SECONDS = 0.1
REASON_SECONDS = 1.0  # for the reason of a SIGTERM to arrive: torchrun stops its processes, too
MAX_LINE_BYTES = 1 << 26  # an outcome with all its steps and events


class NodeLostError(RuntimeError):
    """A node, its link, its torchrun or one of its ranks is lost; the measurement has to end."""


class _Placed(Protocol):
    """What is needed of a `Place`."""

    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def node(self) -> int: ...
    @property
    def host(self) -> str: ...


def say(line: str) -> None:
    """Write a line to standard error, at once."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


@dataclass
class _Link:
    """A connection to a peer, with the time (monotonic, s) of the last line that it sent."""

    rank: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    heard_at: float = field(default_factory=time.monotonic)
    warned_at: float = field(default_factory=time.monotonic)
    has_left: bool = False

    def send(self, message: dict[str, Any]) -> None:
        """Queue a line; never waits."""
        self.writer.write((json.dumps(message) + "\n").encode())

    async def receive(self) -> dict[str, Any] | None:
        """The next line; None where the connection is closed."""
        line = await self.reader.readline()
        self.heard_at = self.warned_at = time.monotonic()
        return json.loads(line) if line.endswith(b"\n") else None


class Peers:
    """The connections of one process to the others."""

    def __init__(self, place: _Placed, store: Store, on_lost: Callable[[str], None]) -> None:
        """Connect, and wait until all processes have.

        Args:
            place: where this process stands.
            store: torchrun's, to find rank 0's port with.
            on_lost: called once, from another thread, with what was lost.

        Raises:
            NodeLostError: some process did not connect.
        """
        self.place = place
        self.lost: str | None = None
        self.address: str | None = None  # of this process on its link to the other nodes
        self._on_lost = on_lost
        self._parent = os.getppid()
        self._links: dict[int, _Link] = {}
        self._values: dict[str, dict[int, Any]] = {}
        self._names = {place.rank: f"node {place.node} ({socket.gethostname()})"}
        self._changed = threading.Condition()
        self._is_closing = False
        self._stop = asyncio.Event()
        if place.rank == 0:
            self._token = secrets.token_hex(16)
            self._listening = _listening()
            store.set("peers", f"{self._listening.getsockname()[1]} {self._token}")
        else:
            port, self._token = _published(store, "peers").split()
            self._target = (place.host, int(port))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="peers", daemon=True)
        self._thread.start()
        for rank, name in enumerate(self.gather("meet", self._names[place.rank], MEET_SECONDS)):
            self._names[rank] = name

    # --- what the process calls

    def name(self, rank: int) -> str:
        """The node of a rank: its number and its host."""
        return self._names.get(rank, f"the node of rank {rank}")

    def tell(self, key: str, value: object = None) -> None:
        """Tell every process a value; never waits."""
        self._keep(key, self.place.rank, value)
        message = {"key": key, "rank": self.place.rank, "value": value}
        self._loop.call_soon_threadsafe(self._send_all, message)

    def is_told(self, key: str) -> bool:
        """Whether any process has told a value under this key."""
        with self._changed:
            return bool(self._values.get(key))

    def gather(self, key: str, value: object, seconds: float | None = None) -> list[Any]:
        """The values that all processes tell under a key, in the order of the ranks.

        Says every five seconds whom it waits for.

        Args:
            key: used once.
            value: this process's own, JSON.
            seconds: the longest to wait; None: as long as nobody is lost.

        Raises:
            NodeLostError: somebody told nothing in that time.
        """
        self.tell(key, value)
        start = said = time.monotonic()
        while True:
            with self._changed:
                missing = self._missing(key)
                if not missing:
                    told = self._values.pop(key)
                    return [told[rank] for rank in range(self.place.world_size)]
                self._changed.wait(LOOK_SECONDS)
            now = time.monotonic()
            names = ", ".join(dict.fromkeys(self.name(rank) for rank in missing))
            if seconds is not None and now - start > seconds:
                raise NodeLostError(f"{names} did not answer within {seconds:.0f} s: {key}")
            if now - said > WORD_SECONDS and self.lost is None:
                said = now
                mine = self._names[self.place.rank]
                say(f"{mine}: waiting for {names} ({now - start:.0f} s): {key}")

    def wait_for_loss(self) -> bool:
        """Whether something is lost, or turns out to be in a moment."""
        end = time.monotonic() + REASON_SECONDS
        while self.lost is None and time.monotonic() < end:
            time.sleep(LOOK_SECONDS)
        return self.lost is not None

    def close(self, reason: str | None = None) -> None:
        """Leave; with a reason, the others end as well.

        Args:
            reason: what goes on after this node's name, such as "was stopped".
        """
        self._is_closing = self._is_closing or reason is None
        message = {"left": None if reason is None else f"{self._names[self.place.rank]} {reason}"}
        with suppress(RuntimeError):  # the thread has ended already
            self._loop.call_soon_threadsafe(self._send_all, message)
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(2 * CLOSE_SECONDS)

    def give_up(self, what: str) -> NodeLostError:
        """Tell every process that the measurement is lost; the error to raise here."""
        if self._is_first_loss(what):
            self._loop.call_soon_threadsafe(self._send_all, {"left": what})
        return NodeLostError()

    # --- the thread

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._live())
        self._loop.close()

    async def _live(self) -> None:
        server = None
        if self.place.rank == 0:
            server = await asyncio.start_server(
                self._accept, sock=self._listening, limit=MAX_LINE_BYTES
            )
        else:
            await self._connect()
        watch = asyncio.create_task(self._watch())
        await self._stop.wait()
        self._is_closing = True
        watch.cancel()
        closing = [_close(link.writer) for link in self._links.values()]
        if closing:
            await asyncio.wait([self._loop.create_task(c) for c in closing], timeout=CLOSE_SECONDS)
        if server is not None:
            server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                reader, writer = await asyncio.open_connection(*self._target, limit=MAX_LINE_BYTES)
        except OSError as error:  # a TimeoutError is one
            why = str(error) or "no answer"
            self._lose(f"node 0 cannot be reached at {':'.join(map(str, self._target))}: {why}")
            return
        link = _Link(0, reader, writer)
        link.send({"hello": self.place.rank, "token": self._token})
        self._add(link)
        self._loop.create_task(self._read(link))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A new connection; what does not know the token is not one of us."""
        link = _Link(-1, reader, writer)
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                hello = await link.receive() or {}
        except (OSError, ValueError):
            hello = {}
        if hello.get("token") != self._token:
            writer.close()
            return
        link.rank = hello["hello"]
        self._add(link)
        await self._read(link)

    def _add(self, link: _Link) -> None:
        address = link.writer.get_extra_info("sockname")[0]
        self.address = str(address).removeprefix("::ffff:")
        with self._changed:
            told = [(key, rank, v) for key, of in self._values.items() for rank, v in of.items()]
            self._links[link.rank] = link
        for key, rank, value in told:
            link.send({"key": key, "rank": rank, "value": value})

    async def _read(self, link: _Link) -> None:
        """Take in what a peer sends, until it leaves or its connection breaks."""
        why = "its process ended without a word"
        try:
            while (message := await link.receive()) is not None:
                self._take(link, message)
        except ConnectionError:
            pass  # a process that dies with lines unread resets the connection
        except (OSError, ValueError) as error:
            why = f"its connection broke ({error})"
        if not link.has_left:
            self._lose(f"{self.name(link.rank)} is lost: {why}")

    def _take(self, link: _Link, message: dict[str, Any]) -> None:
        if "left" in message:
            link.has_left = True
            if message["left"] is not None:
                self._lose(message["left"])
        elif "key" in message:
            self._keep(message["key"], message["rank"], message["value"])
            for other in self._links.values():
                if self.place.rank == 0 and other is not link:
                    other.send(message)

    def _keep(self, key: str, rank: int, value: object) -> None:
        with self._changed:
            self._values.setdefault(key, {})[rank] = value
            if key == "meet":
                self._names[rank] = str(value)
            self._changed.notify_all()

    def _missing(self, key: str) -> list[int]:
        told = self._values.get(key, {})
        return [rank for rank in range(self.place.world_size) if rank not in told]

    def _send_all(self, message: dict[str, Any]) -> None:
        for link in self._links.values():
            if not link.has_left:
                link.send(message)

    async def _watch(self) -> None:
        """Send heartbeats, and look for those that stay away."""
        looked = beaten = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = time.monotonic()
            if now - looked > STALLED_SECONDS:
                for link in self._links.values():
                    link.heard_at = link.warned_at = now
            looked = now
            if os.getppid() != self._parent:
                self._lose(f"{self._names[self.place.rank]} is lost: its torchrun ended")
            if now - beaten > BEAT_SECONDS:
                beaten = now
                self._send_all({"beat": True})
                for link in list(self._links.values()):
                    self._look_at(link, now)

    def _look_at(self, link: _Link, now: float) -> None:
        name = self.name(link.rank)
        if link.has_left or self.lost is not None:
            return
        if now - link.heard_at > SILENT_SECONDS:
            self._lose(
                f"{name} is lost: it has been silent for {SILENT_SECONDS:.0f} s; "
                "its machine or its link is down"
            )
        elif now - link.warned_at > WORD_SECONDS:
            link.warned_at = now
            say(f"{name} has been silent for {now - link.heard_at:.0f} s")

    def _lose(self, what: str) -> None:
        """Something is lost: say so here, pass it on, and let this process end."""
        if self._is_first_loss(what):
            self._send_all({"left": what})
            self._on_lost(what)

    def _is_first_loss(self, what: str) -> bool:
        with self._changed:
            if self.lost is not None or self._is_closing:
                return False
            self.lost = what
        say(what)
        return True


async def _close(writer: asyncio.StreamWriter) -> None:
    """Send what is queued, then close."""
    with suppress(OSError):
        await writer.drain()
        writer.close()
        await writer.wait_closed()


def _listening() -> socket.socket:
    """A socket on every interface, IPv6 too where the kernel has it."""
    if socket.has_dualstack_ipv6():
        with suppress(OSError):
            return socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _published(store: Store, key: str) -> str:
    """A value of the store, waited for in steps, so that a signal is heard in between.

    Raises:
        NodeLostError: nobody has set it in time.
    """
    start = said = time.monotonic()
    while not store.check([key]):
        time.sleep(LOOK_SECONDS)
        now = time.monotonic()
        if now - start > MEET_SECONDS:
            raise NodeLostError(f"rank 0 did not say within {MEET_SECONDS:.0f} s where it listens")
        if now - said > WORD_SECONDS:
            said = now
            say(f"waiting for node 0 to start rank 0 ({now - start:.0f} s)")
    return bytes(store.get(key)).decode()
