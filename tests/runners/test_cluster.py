"""Ranks over two nodes, started by torchrun: two network namespaces of this machine stand for them.

One start measures, and loses a rank; `make soak` tries both kinds of rendezvous, with addresses and
with host names, every way to lose a node, and the start after that.
"""

import os
import time
from types import SimpleNamespace

import pytest

from proofbook.companions.cluster import __main__ as cluster
from proofbook.runners.session import peers
from proofbook.runners.traces.files import read, read_machine
from tests.runners.two_nodes import DEAD, NO_ANSWER, SILENT, lost, two_nodes, with_nodes


@with_nodes
def test_two_nodes_measure_as_one_machine_until_a_rank_is_lost(run, tmp_path):
    """A run of both nodes, one of a single rank, one that fails, and one whose rank is killed."""
    names = ("scaling.strong_2", "scaling.one", "scaling.strong_4", "mishaps.raises")
    with two_nodes(tmp_path) as on:
        found = lost(on, "rank", *names)
    described, trace = read_machine(found.folder), read(found.folder / "scaling.json")
    here, nodes = run("scaling", "strong_2"), trace.runs["strong_2"]
    assert [r.parameter_digest for r in nodes.ranks] == [r.parameter_digest for r in here.ranks]
    assert nodes.epochs == here.epochs
    assert nodes.settings == here.settings
    assert nodes.timing.step is not None
    assert trace.runs["one"].status == "completed"

    reasons = {n: r.reason for n, r in trace.runs.items() if r.status == "skipped"}
    assert set(reasons) == set(trace.runs) - {"one", "strong_2"}
    assert reasons["strong_4"] == "it takes 4 ranks, and 2 were started on these nodes"
    assert "links of their own" in str(reasons["link_slow"])
    assert reasons["weak_2"] == "not named: `-m runners.cluster scaling.weak_2` measures it"

    assert found.folder.name.startswith("2-nodes-")
    assert described.name == found.folder.name == trace.machine
    assert described.system.endswith("2 nodes")
    for number, said in enumerate(found.said):
        address = f"10.213.0.{number + 1}"
        assert f"node {number} (n{number}): one of 2, connected over link0, {address}" in said
        assert f"traceback : {DEAD}" in said  # torchrun repeats it
    assert found.temporary == [[], []]

    failed = read(found.folder / "mishaps.json").runs["raises"]
    assert (failed.status, failed.error.kind) == ("failed", "exception")
    assert [r.rank for r in failed.ranks] == [0, 1]


@pytest.mark.parametrize(("store_seconds", "said"), [(0.0, SILENT), (16.0, NO_ANSWER)])
def test_a_node_or_a_store_that_is_silent_for_long_is_lost(monkeypatch, store_seconds, said):
    """Node 1 was heard last 16 seconds ago, and the store now or then, too."""
    watching = object.__new__(peers.Peers)
    watching.is_over, watching._torchrun = False, os.getppid()
    watching._names = {0: "node 0 (n0)", 1: "node 1 (n1)"}
    watching._answered = time.monotonic() - store_seconds
    watching._heard = {1: (b"1", time.monotonic() - 16.0)}
    lines = []

    def lose(line):
        lines.append(line)
        watching.is_over = True

    monkeypatch.setattr(watching, "lose", lose)
    watching._watch()
    (line,) = lines
    assert line.startswith(said)


@pytest.mark.parametrize(("fact", "other"), [("software", "code"), ("accelerators", "1 acc")])
def test_nodes_whose_ranks_would_differ_are_refused(fact, other):
    """Each node chooses the backend by its own accelerators: with other ones, all would wait."""
    facts = [{"software": "a", "accelerators": 2}, {"software": "a", "accelerators": 2}]
    nodes = SimpleNamespace(
        facts=facts, name=lambda rank: f"node {rank}", worker=SimpleNamespace(num_nodes=2)
    )
    assert cluster._described(nodes).name.startswith("2-nodes-")
    facts[1][fact] = {"software": "b", "accelerators": 1}[fact]
    with pytest.raises(ValueError, match=f"node 1 .*{other}.* node 0"):
        cluster._described(nodes)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nosuch", "no experiment 'nosuch'"),
        ("scaling.nosuch", "no run of scaling 'nosuch'; there are: one"),
        ("scaling.strong_2", "RANK' is not set; start it on each node with `torchrun --nnodes 2"),
    ],
)
def test_a_wrong_call_is_one_line_before_any_node_is_met(capsys, monkeypatch, name, words):
    monkeypatch.delenv("RANK", raising=False)
    assert cluster.main([name]) == 2
    line = capsys.readouterr().err
    assert words in line
    assert line.count("\n") == 1
