"""Ranks over two nodes, started by torchrun: two network namespaces of this machine stand for them.

Each start serves all tests that look at it. Between them they try both kinds of rendezvous, with
addresses and with host names, and every way to lose a node.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from runners.cluster import node
from runners.cluster.torchrun import NodeError, Place
from runners.traces import machine
from runners.traces.files import read, read_machine, read_part
from runners.traces.records import Run, Trace
from tests.runners.two_nodes import TwoNodes, cannot_be_nodes, two_nodes

Measure = Callable[[str, str], Run]
has_nodes = pytest.mark.skipif(cannot_be_nodes() is not None, reason=str(cannot_be_nodes()))
MOST_SECONDS = 900  # a loaded machine starts two torchruns, and loads torch eight times
ENDLESS = "is in all_reduce"  # a rank of `lasting.endless` works by then


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
    temporary = [sorted(p.name for p in nodes.temporary(node).iterdir()) for node in (0, 1)]
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


@has_nodes
@pytest.mark.ranks
@pytest.mark.timeout(MOST_SECONDS)
def test_two_nodes_come_to_the_parameters_of_one_machine(run: Measure, trace: Trace) -> None:
    here, nodes = run("scaling", "strong_2"), trace.runs["strong_2"]
    assert [r.parameter_digest for r in nodes.ranks] == [r.parameter_digest for r in here.ranks]
    assert nodes.epochs == here.epochs
    assert nodes.settings == here.settings
    assert nodes.timing.step is not None


@has_nodes
@pytest.mark.ranks
@pytest.mark.timeout(MOST_SECONDS)
def test_a_run_of_one_rank_is_measured_on_one_node(trace: Trace) -> None:
    assert trace.runs["one"].status == "completed"
    assert trace.runs["one"].timing.measures["compute"].num_samples > 0


@has_nodes
@pytest.mark.ranks
@pytest.mark.timeout(MOST_SECONDS)
def test_what_nodes_do_not_measure_is_skipped_with_its_reason(
    measured: Ended, trace: Trace
) -> None:
    reasons = {n: r.reason for n, r in trace.runs.items() if r.status == "skipped"}
    assert set(reasons) == set(trace.runs) - {"one", "strong_2"}
    assert reasons["strong_4"] == "it takes 4 ranks, and 2 were started on these nodes"
    assert "links of their own" in str(reasons["link_slow"])
    assert (
        reasons["weak_2"] == "not asked for: `-m runners.cluster.node scaling.weak_2` measures it"
    )
    assert f"scaling.strong_4: {reasons['strong_4']}" in measured.said[0]


@has_nodes
@pytest.mark.ranks
@pytest.mark.timeout(MOST_SECONDS)
def test_nodes_have_a_folder_and_a_name_of_their_own(measured: Ended, trace: Trace) -> None:
    described = read_machine(measured.folder)
    assert measured.folder.name.startswith("2-nodes-")
    assert described.name == measured.folder.name == trace.machine
    assert described.system.endswith("2 nodes")


@has_nodes
@pytest.mark.ranks
@pytest.mark.timeout(MOST_SECONDS)
def test_the_root_cause_is_named_whichever_node_it_lies_on(measured: Ended, trace: Trace) -> None:
    assert trace.runs
    failed = read(measured.folder / "mishaps.json").runs["raises"]
    assert failed.status == "failed"
    assert failed.error is not None
    assert failed.error.kind == "exception"
    assert [r.rank for r in failed.ranks] == [0, 1]


@has_nodes
@pytest.mark.ranks
@pytest.mark.timeout(MOST_SECONDS)
def test_each_node_says_which_interface_leads_to_the_others(measured: Ended) -> None:
    for number, said in enumerate(measured.said):
        address = f"10.213.0.{number + 1}"
        assert f"node {number} (n{number}): one of 2, connected over link0, {address}" in said
    assert measured.left == {}
    assert measured.temporary == [[], []]


@pytest.fixture(scope="session")
def cut_off(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ended]:
    """Nodes whose endless run was ended in some way; each way once a session."""
    known: dict[str, Ended] = {}

    def lost(how: str) -> Ended:
        if how not in known:
            with two_nodes(tmp_path_factory.mktemp("lost")) as nodes:
                nodes.traces.mkdir()
                known[how] = _lost(nodes, how)
        return known[how]

    return lost


def _lost(nodes: TwoNodes, how: str) -> Ended:
    rendezvous, host, action, number = WAYS[how]
    previous = folder_of(nodes) / "lasting.json"
    previous.parent.mkdir()
    previous.write_bytes(b"what was measured before")
    nodes.start(rendezvous, host, "lasting")
    nodes.wait_for(ENDLESS)
    action(nodes, number)
    found = ended(nodes)
    if how == "rank":
        assert previous.read_bytes() == b"what was measured before"
        assert set(read_part(previous.parent / ".lasting.part").runs) == {"brief"}
        nodes.start(rendezvous, host, "lasting.brief")
        assert nodes.wait() == [0, 0]
        found.again = [nodes.said(0), nodes.said(1)]
    return found


Action = Callable[[TwoNodes, int], None]
# How the nodes meet, how they know the first of them, what is done, and to which of them.
WAYS: dict[str, tuple[str, str, Action, int]] = {
    "launcher": ("c10d", "address", lambda nodes, n: nodes.kill(n, "launcher"), 0),
    "node": ("static", "name", lambda nodes, n: nodes.kill(n, "node"), 1),
    "holder": ("c10d", "name", lambda nodes, n: nodes.kill(n, "node"), 0),
    "rank": ("static", "address", lambda nodes, n: nodes.kill(n, "rank"), 1),
    "link": ("c10d", "address", lambda nodes, n: nodes.silence(n), 1),
    "stopped": ("static", "name", lambda nodes, n: nodes.stop(n), 1),
}


@has_nodes
@pytest.mark.ranks
@pytest.mark.timeout(MOST_SECONDS)
@pytest.mark.parametrize(
    ("how", "survivor", "words"),
    [
        ("launcher", 1, "node 0 (n0) is lost: its torchrun ended"),
        ("node", 0, "node 1 (n1) is lost: its process ended without a word"),
        ("holder", 1, "node 0 (n0) is lost: its process ended without a word"),
        ("rank", 0, "lasting.endless is lost: node 1 (n1): rank 1 died in all_reduce: SIGKILL"),
        ("rank", 1, "lasting.endless is lost: node 1 (n1): rank 1 died in all_reduce: SIGKILL"),
        ("link", 0, "node 1 (n1) is lost: it has been silent for 15 s"),
        ("link", 1, "node 0 (n0) is lost: it has been silent for 15 s"),
        ("stopped", 0, "node 1 (n1) was stopped by SIGTERM"),
    ],
)
def test_the_others_say_which_node_is_lost_and_end(
    cut_off: Callable[[str], Ended], how: str, survivor: int, words: str
) -> None:
    found = cut_off(how)
    assert words in found.said[survivor]
    assert found.temporary[survivor] == []
    assert found.codes[survivor] == node.LOST
    assert "Traceback" not in found.said[survivor]


@has_nodes
@pytest.mark.ranks
@pytest.mark.timeout(MOST_SECONDS)
@pytest.mark.parametrize("how", WAYS)
def test_no_process_outlives_a_lost_node(cut_off: Callable[[str], Ended], how: str) -> None:
    assert cut_off(how).left == {}


@has_nodes
@pytest.mark.ranks
@pytest.mark.timeout(MOST_SECONDS)
@pytest.mark.parametrize("how", WAYS)
def test_a_lost_run_replaces_no_trace_and_what_had_ended_is_kept(
    cut_off: Callable[[str], Ended], how: str
) -> None:
    folder = cut_off(how).folder
    if how != "rank":  # there the next start has written it by now
        assert (folder / "lasting.json").read_bytes() == b"what was measured before"
        assert set(read_part(folder / ".lasting.part").runs) == {"brief"}
    lists = {"machine.json", "values.json"}
    assert {p.name for p in folder.iterdir()} <= {"lasting.json", ".lasting.part", *lists}


@has_nodes
@pytest.mark.ranks
@pytest.mark.timeout(MOST_SECONDS)
def test_the_next_start_takes_what_had_ended(cut_off: Callable[[str], Ended]) -> None:
    found = cut_off("rank")
    assert "lasting.brief: kept from the start before" in found.again[0]
    assert read(found.folder / "lasting.json").runs["brief"].status == "completed"
    assert not (found.folder / ".lasting.part").exists()


@has_nodes
@pytest.mark.ranks
@pytest.mark.timeout(MOST_SECONDS)
def test_a_node_that_is_stopped_ends_as_a_machine_that_is_stopped(
    cut_off: Callable[[str], Ended],
) -> None:
    assert cut_off("stopped").codes[1] == 143


@pytest.fixture
def unstarted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No torchrun has started this process."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("runners.traces.machine.TRACES", tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)


@pytest.mark.usefixtures("unstarted")
def test_without_torchrun_the_command_says_how_it_is_started(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert node.main(["scaling.strong_2"]) == 2
    assert "torchrun … -m runners.cluster.node" in capsys.readouterr().err


def test_a_node_that_is_lost_and_stopped_at_once_ends_without_a_traceback() -> None:
    both_at_once = """
import signal
from runners.cluster import node
signals = {node.LOSS, signal.SIGTERM}
signal.signal(node.LOSS, node._lose)
signal.signal(signal.SIGTERM, node._stop)
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
for number in signals:
    signal.raise_signal(number)
try:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
except (node.NodeLostError, KeyboardInterrupt) as error:
    print(type(error).__name__)
"""
    command = [sys.executable, "-c", both_at_once]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout in ("NodeLostError\n", "KeyboardInterrupt\n")
    assert ended.stderr == ""


def test_an_interface_that_this_node_has_not_is_a_wrong_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nosuch7")
    with pytest.raises(NodeError, match=r"GLOO_SOCKET_IFNAME=nosuch7, which .* choose among .*lo"):
        node._use_interface(None)


def test_the_interface_of_an_address_is_used_unless_one_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable in node.INTERFACES:
        monkeypatch.setenv(variable, "")  # is put back to what it was after the test
        monkeypatch.delenv(variable)
    assert node._use_interface("127.0.0.1") == "lo"


def test_a_place_is_what_torchrun_told() -> None:
    told = {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "MASTER_ADDR": "first",
        "MASTER_PORT": "29400",
    }
    place = Place.told(told)
    assert (place.rank, place.num_nodes, place.host, place.port) == (5, 2, "first", 29400)
    assert (place.node, place.local) == (1, 1)
    with pytest.raises(NodeError, match="WORLD_SIZE"):
        Place.told({"RANK": "0"})
