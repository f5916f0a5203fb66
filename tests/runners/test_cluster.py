"""Ranks over two nodes, started by torchrun: two network namespaces of this machine stand for them.

Each start serves all tests that look at it. Between them they try both kinds of rendezvous, with
addresses and with host names, and the ways to lose a node.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from torch.distributed import TCPStore

from runners.cluster import __main__ as cluster
from runners.cluster.peers import Peers, Place
from runners.traces import machine
from runners.traces.files import read, read_machine, read_part
from runners.traces.records import Run, Trace
from tests.runners.two_nodes import TwoNodes, cannot_be_nodes, two_nodes

Measure = Callable[[str, str], Run]
MOST_SECONDS = 900  # a loaded machine starts two torchruns, and loads torch eight times
on_nodes = [
    pytest.mark.skipif(cannot_be_nodes() is not None, reason=str(cannot_be_nodes())),
    pytest.mark.ranks,
    pytest.mark.timeout(MOST_SECONDS),
]
ENDLESS = "rank 0 all_reduce"  # a rank of `lasting.endless` works by then


def with_nodes(test: Callable[..., None]) -> Callable[..., None]:
    """A test that needs two nodes."""
    for mark in on_nodes:
        test = mark(test)
    return test


@dataclass
class Ended:
    """What two nodes said, how they ended, and what was left."""

    codes: list[int]
    said: list[str]
    left: dict[int, str]
    temporary: list[list[str]]
    folder: Path
    again: list[str] = field(default_factory=list)


def folder_of(nodes: TwoNodes) -> Path:
    """Where they keep what they measure: this machine has an id by then, as they will find it."""
    machine.keep_id()
    machine.describe.cache_clear()  # of the time before it had one
    return nodes.traces / f"2-nodes-{machine.describe().name}"


def ended(nodes: TwoNodes) -> Ended:
    codes = nodes.wait()
    folder = folder_of(nodes)
    said, left = [nodes.said(node) for node in (0, 1)], nodes.left()
    temporary = [sorted(p.name for p in nodes.temporary(n).glob("proofbook*")) for n in (0, 1)]
    return Ended(codes, said, left, temporary, folder)


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """What two nodes measured: a run of both, one of a single rank, and one that fails."""
    with two_nodes(tmp_path_factory.mktemp("measured")) as nodes:
        names = ("scaling.strong_2", "scaling.one", "scaling.strong_4", "mishaps.raises")
        nodes.start("c10d", "name", *names)
        return ended(nodes)


@pytest.fixture(scope="session")
def trace(measured: Ended) -> Trace:
    assert measured.codes == [0, 0], measured.said
    return read(measured.folder / "scaling.json")


@with_nodes
def test_two_nodes_come_to_the_parameters_of_one_machine(run: Measure, trace: Trace) -> None:
    here, nodes = run("scaling", "strong_2"), trace.runs["strong_2"]
    assert [r.parameter_digest for r in nodes.ranks] == [r.parameter_digest for r in here.ranks]
    assert nodes.epochs == here.epochs
    assert nodes.settings == here.settings
    assert nodes.timing.step is not None
    assert trace.runs["one"].status == "completed"


@with_nodes
def test_what_nodes_do_not_measure_is_skipped_with_its_reason(trace: Trace) -> None:
    reasons = {n: r.reason for n, r in trace.runs.items() if r.status == "skipped"}
    assert set(reasons) == set(trace.runs) - {"one", "strong_2"}
    assert reasons["strong_4"] == "it takes 4 ranks, and 2 were started on these nodes"
    assert "links of their own" in str(reasons["link_slow"])
    assert reasons["weak_2"] == "not named: `-m runners.cluster scaling.weak_2` measures it"


@with_nodes
def test_nodes_have_a_folder_and_a_name_of_their_own(measured: Ended, trace: Trace) -> None:
    described = read_machine(measured.folder)
    assert measured.folder.name.startswith("2-nodes-")
    assert described.name == measured.folder.name == trace.machine
    assert described.system.endswith("2 nodes")


@with_nodes
def test_the_root_cause_is_named_whichever_node_it_lies_on(measured: Ended, trace: Trace) -> None:
    assert trace.runs
    failed = read(measured.folder / "mishaps.json").runs["raises"]
    assert failed.status == "failed"
    assert failed.error is not None
    assert failed.error.kind == "exception"
    assert [r.rank for r in failed.ranks] == [0, 1]


@with_nodes
def test_each_node_says_which_interface_leads_to_the_others(measured: Ended) -> None:
    for number, said in enumerate(measured.said):
        address = f"10.213.0.{number + 1}"
        assert f"node {number} (n{number}): one of 2, connected over link0, {address}" in said
    assert measured.left == {}
    assert measured.temporary == [[], []]


@pytest.fixture(scope="session")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ended]:
    """Nodes whose endless run was ended in some way; each way once a session."""
    known: dict[str, Ended] = {}

    def found(how: str) -> Ended:
        if how not in known:
            with two_nodes(tmp_path_factory.mktemp("lost")) as nodes:
                nodes.traces.mkdir()
                known[how] = _lost(nodes, how)
        return known[how]

    return found


def _lost(nodes: TwoNodes, how: str) -> Ended:
    rendezvous, host, action, number = WAYS[how]
    previous = folder_of(nodes) / "lasting.json"
    previous.parent.mkdir()
    previous.write_bytes(b"what was measured before")
    nodes.start(rendezvous, host, "lasting")
    nodes.wait_for(ENDLESS)
    action(nodes, number)
    found = ended(nodes)
    assert previous.read_bytes() == b"what was measured before"
    assert set(read_part(previous.parent / ".lasting.part").runs) == {"brief"}
    if how == "rank":
        nodes.start(rendezvous, host, "lasting.brief")
        assert nodes.wait() == [0, 0]
        found.again = [nodes.said(0), nodes.said(1)]
    return found


Action = Callable[[TwoNodes, int], None]
# How the nodes meet, how they know the first of them, what is done, and to which of them.
WAYS: dict[str, tuple[str, str, Action, int]] = {
    "torchrun, c10d": ("c10d", "address", lambda nodes, n: nodes.kill(n, "torchrun"), 0),
    "torchrun, static": ("static", "name", lambda nodes, n: nodes.kill(n, "torchrun"), 1),
    "process, c10d": ("c10d", "name", lambda nodes, n: nodes.kill(n, "process"), 1),
    "process, static": ("static", "address", lambda nodes, n: nodes.kill(n, "process"), 0),
    "packets, c10d": ("c10d", "address", lambda nodes, n: nodes.silence(n), 1),
    "packets, static": ("static", "name", lambda nodes, n: nodes.silence(n), 1),
    "rank": ("static", "address", lambda nodes, n: nodes.kill(n, "rank"), 1),
    "stopped": ("c10d", "name", lambda nodes, n: nodes.stop(n), 1),
}


@with_nodes
@pytest.mark.parametrize(
    ("how", "survivor", "words"),
    [
        ("torchrun, c10d", 1, "node 0 (n0) is lost: its torchrun ended"),
        ("torchrun, static", 0, "node 1 (n1) is lost: its torchrun ended"),
        ("process, c10d", 0, "node 1 (n1) is lost: its process ended without a word"),
        ("process, static", 1, "node 0 (n0) is lost: its process ended without a word"),
        ("packets, c10d", 0, "node 1 (n1) is lost: it has been silent for 15 s"),
        ("packets, c10d", 1, "node 0 (n0) is lost: it has been silent for 15 s"),
        ("packets, static", 0, "node 1 (n1) is lost: it has been silent for 15 s"),
        ("rank", 0, "lasting.endless is lost: node 1 (n1): rank 1 died in all_reduce: SIGKILL"),
        ("rank", 1, "lasting.endless is lost: node 1 (n1): rank 1 died in all_reduce: SIGKILL"),
        ("stopped", 0, "node 1 (n1) was stopped by SIGTERM"),
    ],
)
def test_the_others_say_which_node_is_lost_and_end(
    lost: Callable[[str], Ended], how: str, survivor: int, words: str
) -> None:
    found = lost(how)
    assert words in found.said[survivor]
    assert found.codes[survivor]
    assert found.temporary[survivor] == []
    assert found.left == {}


@with_nodes
def test_torchrun_repeats_the_cause_on_each_node(lost: Callable[[str], Ended]) -> None:
    for node, said in enumerate(lost("packets, static").said):
        assert f"traceback : node {1 - node} (n{1 - node}) is lost: it has been silent" in said


@with_nodes
def test_the_next_start_takes_what_had_ended(lost: Callable[[str], Ended]) -> None:
    found = lost("rank")
    assert "kept as measured before" in found.again[0]
    assert read(found.folder / "lasting.json").runs["brief"].status == "completed"
    assert not (found.folder / ".lasting.part").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nosuch", "no experiment 'nosuch'"),
        ("scaling.nosuch", "scaling has no run 'nosuch'; it has: one"),
        ("scaling.strong_2", "RANK' is not set; start it on each node with `torchrun --nnodes 2"),
    ],
)
def test_a_wrong_call_is_one_line_before_any_node_is_met(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert cluster.main([name]) == 2
    line = capsys.readouterr().err
    assert words in line
    assert line.count("\n") == 1


@pytest.fixture
def store() -> Iterator[TCPStore]:
    """What torchrun would keep."""
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(60))


def test_a_stranger_is_not_taken_for_a_process_of_the_run(store: TCPStore) -> None:
    def met(rank: int) -> Peers:
        place = Place(rank, 2, 1, rank, 2, "127.0.0.1", store.port, "one of mine")
        return Peers(place, {"square": rank**2})

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(met, 0)
        port = int(store.get("proofbook/watch"))
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
            both = [first, pool.submit(met, 1)]
            assert [[f["square"] for f in peers.result().facts] for peers in both] == [[0, 1]] * 2
            left = [pool.submit(peers.result().leave) for peers in both]
            assert [one.result() for one in left] == [None, None]
