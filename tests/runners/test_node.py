"""Ranks over two nodes, started by torchrun: two network namespaces of this machine stand for them.

One start of torchrun on each serves all tests that look at its trace.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runners import links, node
from runners.torchrun import NodeError, Place
from runners.trace import Run, Trace, read, read_machine

OWN_EXPERIMENTS = Path(__file__).parent / "experiments"
Measure = Callable[[str, str], Run]
can_link = pytest.mark.skipif(links.cannot_link() is not None, reason=str(links.cannot_link()))
PORT = "29400"


def on_two_nodes(traces: Path, *names: str) -> list[int]:
    """Start torchrun on both nodes, each with one rank; their exit codes."""
    environment = {
        **os.environ,
        "GLOO_SOCKET_IFNAME": links.INTERFACE,
        "PROOFBOOK_TRACES": str(traces),
        "PROOFBOOK_EXPERIMENTS": str(OWN_EXPERIMENTS),
    }
    with links.linked(2, 10**9) as nodes:
        started = [
            subprocess.Popen(
                [
                    *("ip", "netns", "exec", namespace),
                    *(sys.executable, "-m", "torch.distributed.run"),
                    *("--nnodes", "2", "--node-rank", str(rank), "--nproc-per-node", "1"),
                    *("--master-addr", links.address(0), "--master-port", PORT),
                    *("-m", "runners.node", *names),
                ],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for rank, namespace in enumerate(nodes)
        ]
        try:
            return [process.wait(400) for process in started]
        finally:
            for process in started:
                process.kill()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two nodes measured: a run of both, one of a single rank, and one that fails."""
    traces = tmp_path_factory.mktemp("nodes")
    codes = on_two_nodes(traces, "scaling.strong_2", "scaling.one", "mishaps.raises")
    assert codes == [0, 0]
    (found,) = (path for path in traces.iterdir() if path.is_dir())
    return found


@pytest.fixture(scope="session")
def trace(folder: Path) -> Trace:
    return read(folder / "scaling.json")


@can_link
@pytest.mark.ranks
def test_two_nodes_come_to_the_parameters_of_one_machine(run: Measure, trace: Trace) -> None:
    here, nodes = run("scaling", "strong_2"), trace.runs["strong_2"]
    assert [r.parameter_digest for r in nodes.ranks] == [r.parameter_digest for r in here.ranks]
    assert nodes.epochs == here.epochs
    assert nodes.settings == here.settings
    assert nodes.timing.step is not None


@can_link
@pytest.mark.ranks
def test_a_run_of_one_rank_is_measured_on_one_node(trace: Trace) -> None:
    assert trace.runs["one"].status == "completed"
    assert trace.runs["one"].timing.measures["compute"].num_samples > 0


@can_link
@pytest.mark.ranks
def test_what_nodes_do_not_measure_is_skipped_with_its_reason(trace: Trace) -> None:
    reasons = {n: r.reason for n, r in trace.runs.items() if r.status == "skipped"}
    assert set(reasons) == set(trace.runs) - {"one", "strong_2"}
    assert reasons["strong_4"] == "it takes 4 ranks, and 2 were started on these nodes"
    assert "links of their own" in str(reasons["link_slow"])
    assert reasons["weak_2"] == "not asked for: `-m runners.node scaling.weak_2` measures it"


@can_link
@pytest.mark.ranks
def test_nodes_have_a_folder_and_a_name_of_their_own(folder: Path, trace: Trace) -> None:
    described = read_machine(folder)
    assert folder.name.startswith("2-nodes-")
    assert described.name == folder.name == trace.machine
    assert described.system.endswith("2 nodes")


@can_link
@pytest.mark.ranks
def test_the_root_cause_is_named_whichever_node_it_lies_on(folder: Path) -> None:
    failed = read(folder / "mishaps.json").runs["raises"]
    assert failed.status == "failed"
    assert failed.error is not None
    assert failed.error.kind == "exception"
    assert [r.rank for r in failed.ranks] == [0, 1]


def test_without_torchrun_the_command_says_how_it_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("runners.machine.TRACES", tmp_path)
    assert node.main(["scaling.strong_2"]) == 2
    assert "torchrun … -m runners.node" in capsys.readouterr().err


def test_a_place_is_what_torchrun_told() -> None:
    told = {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": "first",
        "MASTER_PORT": "29400",
    }
    place = Place.told(told)
    assert (place.rank, place.num_nodes, place.host, place.port) == (5, 2, "first", 29400)
    with pytest.raises(NodeError, match="WORLD_SIZE"):
        Place.told({"RANK": "0"})
