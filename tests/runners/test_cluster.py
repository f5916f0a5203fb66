"""Ranks over two nodes, started by torchrun: two network namespaces of this machine stand for them.

They try both kinds of rendezvous, with addresses and with host names, and ways to lose a node;
`make soak` tries the others.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.cluster import __main__ as cluster
from runners.measuring.launch import Launcher
from runners.measuring.measure import measure_run
from runners.plans.experiment import find
from runners.traces.files import read, read_machine
from runners.traces.records import Trace
from tests.runners.two_nodes import (
    NO_ANSWER,
    SILENT,
    Ended,
    ended,
    lost,
    two_nodes,
    with_nodes,
)


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
def test_two_nodes_come_to_the_parameters_of_one_machine(launcher: Launcher, trace: Trace) -> None:
    here = measure_run(launcher, find("scaling"), "strong_2")
    nodes = trace.runs["strong_2"]
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


@with_nodes
def test_the_others_say_which_node_is_lost_and_end(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as nodes:
        found = lost(nodes, "packets, static")
    for said, silent in zip(found.said, (SILENT, NO_ANSWER), strict=True):
        assert f"traceback : {silent}" in said


@with_nodes
def test_the_start_after_a_killed_rank_takes_what_had_ended(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as nodes:
        folder = lost(nodes, "rank").folder
        nodes.start("static", "address", "lasting.brief")
        assert nodes.wait() == [0, 0]
        assert "kept as measured before" in nodes.said(0)
    assert read(folder / "lasting.json").runs["brief"].status == "completed"
    assert not (folder / ".lasting.part").exists()


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
