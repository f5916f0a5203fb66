"""torchrun with a word for each wait: what it says, and how it ends, where no other node comes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from runners.cluster import __main__ as cluster
from runners.cluster.peers import NodeLostError

MOST_SECONDS = 300  # a loaded machine takes its time to load torch


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def free() -> int:
    """A port on which nobody listens."""
    return free_port()


def called(*options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "runners.cluster", *options, "scaling.strong_2"],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def first_line(process: subprocess.Popen[str]) -> str:
    """What it says first; then it is stopped."""
    assert process.stderr is not None
    line = process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    process.wait(MOST_SECONDS)
    process.stderr.close()
    return line


@pytest.mark.ranks
@pytest.mark.timeout(MOST_SECONDS)
def test_a_node_says_which_node_it_waits_for() -> None:
    ports = [free_port() for _ in range(2)]  # two, or the nodes would meet
    waits = [
        called(
            *("--nnodes", "2", "--node-rank", str(rank)),
            *("--master-addr", "127.0.0.1", "--master-port", str(ports[rank])),
        )
        for rank in (0, 1)
    ]
    said = [first_line(process) for process in waits]
    start = f"{socket.gethostname()}: waiting for the"
    assert said[0].startswith(f"{start} other node of 2 at 127.0.0.1:{ports[0]} (")
    assert said[1].startswith(f"{start} node that holds 127.0.0.1:{ports[1]} (")
    assert "Connection refused" in said[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nnodes", "2", "--max-restarts", "3", "scaling"], "leave out --max-restarts"),
        (["--nnodes", "1:2", "scaling"], "--nnodes is one number of nodes, not 1:2"),
        (["--nnodes", "2", "nosuch"], "nosuch"),
        (["--nnodes", "2", "scaling.nosuch"], "scaling has no run 'nosuch'; it has: one"),
    ],
)
def test_a_wrong_call_is_one_line_before_any_node_is_met(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert cluster.main(arguments) == 2
    line = capsys.readouterr().err
    assert words in line
    assert line.count("\n") == 1


def test_the_node_with_the_address_holds_the_rendezvous_unless_somebody_does(
    taken: int, free: int
) -> None:
    assert cluster.Rendezvous("127.0.0.1", free).is_here
    assert not cluster.Rendezvous("127.0.0.1", taken).is_here
    # 192.0.2.0/24 and its kin are for documentation: no machine has their addresses.
    assert not cluster.Rendezvous("203.0.113.7", free).is_here


def test_a_host_name_that_means_a_loopback_here_is_what_the_others_are_told(free: int) -> None:
    """Debian maps a machine's own name to 127.0.1.1, which means themselves to all others."""
    assert cluster.Rendezvous("localhost", free).local_address == "localhost"


def test_a_rendezvous_that_somebody_holds_is_not_waited_for(taken: int) -> None:
    start = time.monotonic()
    cluster.Rendezvous("127.0.0.1", taken, is_here=False).wait()
    assert time.monotonic() - start < cluster.MEET_SECONDS


def test_a_wait_in_vain_says_what_it_waited_for(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "MEET_SECONDS", 0.1)
    place = cluster.Rendezvous("127.0.0.1", free, is_here=False)
    with pytest.raises(NodeLostError, match=f"the node that holds 127.0.0.1:{free}: Connection"):
        place.wait()
