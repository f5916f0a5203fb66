"""Processes connected with each other: here threads of one process, or a socket that plays one."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace

import pytest
from torch._C._distributed_c10d import HashStore, Store

from runners.cluster import peers
from runners.cluster.peers import NodeLostError, Peers
from tests.conftest import slowness, wait_until

PATIENCE_SECONDS = 60 * slowness()


@dataclass(frozen=True)
class Here:
    """A place on this machine."""

    rank: int
    world_size: int
    host: str = "127.0.0.1"

    @property
    def node(self) -> int:
        """Each rank is a node."""
        return self.rank


class Heard(list[str]):
    """What was said to be lost, and a wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self._is_there = threading.Event()

    def __call__(self, what: str) -> None:
        self.append(what)
        self._is_there.set()

    def wait(self) -> str:
        assert self._is_there.wait(PATIENCE_SECONDS)
        return self[0]


def connected(store: Store, size: int) -> tuple[list[Peers], list[Heard]]:
    heard = [Heard() for _ in range(size)]
    with ThreadPoolExecutor(size) as pool:
        made = pool.map(lambda r: Peers(Here(r, size), store, heard[r]), range(size))
        return list(made), heard


@pytest.fixture
def three() -> Iterator[tuple[list[Peers], list[Heard]]]:
    """Three processes that have met."""
    found, heard = connected(HashStore(), 3)
    yield found, heard
    for one in found:
        one.close()


def test_every_process_gets_the_values_of_all_in_the_order_of_ranks(
    three: tuple[list[Peers], list[Heard]],
) -> None:
    with ThreadPoolExecutor(3) as pool:
        got = list(pool.map(lambda p: p.gather("squares", p.place.rank**2), three[0]))
    assert got == [[0, 1, 4]] * 3


def test_what_one_process_tells_every_other_can_see(
    three: tuple[list[Peers], list[Heard]],
) -> None:
    found, _ = three
    assert not any(one.is_told("a failure") for one in found)
    found[2].tell("a failure")
    end = time.monotonic() + PATIENCE_SECONDS
    while not all(one.is_told("a failure") for one in found):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_who_leaves_early_tells_every_other_why(
    three: tuple[list[Peers], list[Heard]],
) -> None:
    found, heard = three
    found[1].close("was stopped by SIGTERM")
    name = f"node 1 ({socket.gethostname()}) was stopped by SIGTERM"
    assert [heard[0].wait(), heard[2].wait()] == [name, name]
    assert heard[1] == []


def test_who_leaves_at_the_end_is_not_lost(three: tuple[list[Peers], list[Heard]]) -> None:
    found, heard = three
    for one in found:
        one.close()
    assert heard == [[], [], []]


def test_one_that_gives_up_ends_the_others_and_not_itself(
    three: tuple[list[Peers], list[Heard]],
) -> None:
    found, heard = three
    assert isinstance(found[2].give_up("a rank died"), NodeLostError)
    assert [heard[0].wait(), heard[1].wait()] == ["a rank died"] * 2
    assert heard[2] == []
    assert found[2].lost == "a rank died"


class Played:
    """Rank 1 of two, played by a bare socket."""

    def __init__(self) -> None:
        self.store = HashStore()
        self.heard = Heard()
        self._thread = threading.Thread(target=self._meet)
        self._thread.start()
        port, self.token = peers._published(self.store, "peers").split()
        self.address = ("127.0.0.1", int(port))
        self.socket = socket.create_connection(self.address)
        self.say({"hello": 1, "token": self.token})
        self.say({"key": "meet", "rank": 1, "value": "node 1 (far)"})
        self._thread.join()

    def _meet(self) -> None:
        self.peers = Peers(Here(0, 2), self.store, self.heard)

    def say(self, message: dict[str, object]) -> None:
        self.socket.sendall((json.dumps(message) + "\n").encode())


@pytest.fixture
def played() -> Iterator[Played]:
    """Rank 0, met by a bare socket."""
    made = Played()
    yield made
    made.socket.close()
    made.peers.close()


def test_a_connection_that_closes_without_a_word_is_a_lost_node(played: Played) -> None:
    played.socket.close()
    assert played.heard.wait() == "node 1 (far) is lost: its process ended without a word"


def test_a_peer_without_heartbeats_is_spoken_of_and_then_lost(
    played: Played, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(peers, "WORD_SECONDS", 0.2)
    wait_until(lambda: "node 1 (far) has been silent for" in capsys.readouterr().err)
    assert played.heard == []
    monkeypatch.setattr(peers, "SILENT_SECONDS", 1.0)
    assert played.heard.wait().startswith("node 1 (far) is lost: it has been silent for 1 s")


def test_a_process_whose_torchrun_died_tells_the_others(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    another = os.getppid() + 1
    monkeypatch.setattr("runners.cluster.peers.os.getppid", lambda: another)
    name = f"node 0 ({socket.gethostname()}) is lost: its torchrun ended"
    assert played.heard.wait() == name
    lines = played.socket.makefile("r", encoding="utf-8")
    assert any(json.loads(line).get("left") == name for line in lines)


def test_a_stranger_is_not_taken_for_a_peer(played: Played) -> None:
    for hello in (b'{"hello": 1, "token": "guessed"}\n', b"GET / HTTP/1.0\r\n\r\n"):
        with socket.create_connection(played.address) as stranger:
            stranger.sendall(hello)
            assert stranger.recv(1) == b""  # shown the door
    assert played.heard == []
    played.say({"key": "still here", "rank": 1, "value": None})
    assert played.peers.gather("still here", None, PATIENCE_SECONDS) == [None, None]


def test_a_wait_names_whom_it_waits_for_and_ends(
    played: Played, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here, looks = threading.get_ident(), count()

    def now() -> float:  # a tenth of a second a look, however late the look is
        return next(looks) / 10 if threading.get_ident() == here else time.monotonic()

    monkeypatch.setattr(peers, "time", SimpleNamespace(monotonic=now, sleep=time.sleep))
    monkeypatch.setattr(peers, "WORD_SECONDS", 0.05)
    with pytest.raises(NodeLostError, match=r"node 1 \(far\) did not answer within 1 s: the end"):
        played.peers.gather("the end", None, 1.0)
    assert "waiting for node 1 (far) (0 s): the end" in capsys.readouterr().err


def test_a_first_node_that_never_listens_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "MEET_SECONDS", 0.2)
    with pytest.raises(NodeLostError, match="rank 0 did not say within"):
        Peers(Here(1, 2), HashStore(), Heard())
