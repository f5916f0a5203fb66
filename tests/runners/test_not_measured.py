"""A run that fails for want of the machine is no evidence: it is told, and the trace stays."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runners.measuring import measure, not_measured
from runners.measuring.forkserver import ForkServer
from runners.measuring.launch import Launcher
from runners.measuring.not_measured import NotMeasuredError, UnfinishedError
from runners.measuring.pending import part_of, pending
from runners.measuring.progress import Progress
from runners.plans.experiment import MORE, find
from runners.traces import machine
from runners.traces.files import read
from runners.traces.outcome import RankOutcome
from runners.traces.records import Death, Run

pytestmark = pytest.mark.ranks
Measure = Callable[[str, str], Run]
EXPERIMENTS = Path(__file__).parent / "experiments"


def _cause(run: Measure, name: str) -> str:
    with pytest.raises(NotMeasuredError) as raised:
        run("wanting", name)
    return str(raised.value)


def test_a_death_of_the_declared_rank_phase_and_signal_is_evidence(run: Measure) -> None:
    died = run("wanting", "as_declared")
    assert not died.is_surprise
    assert died.expected_death == Death(rank=1, phase="step", signal="SIGKILL")
    assert died.error is not None
    assert (died.error.rank, died.error.phase, died.error.signal) == (1, "step", "SIGKILL")


def test_a_signal_that_only_others_send_and_no_run_declared_is_not_measured(run: Measure) -> None:
    name = "terminated"
    settings = find("wanting").runs[name].settings
    told = _cause(run, name)
    assert f"rank {settings['dying_rank']} died in {settings['phase']}" in told
    assert f"{settings['signal']}, which this run did not declare" in told


def test_a_rank_that_could_not_report_or_has_no_file_handles_is_not_measured(run: Measure) -> None:
    assert _cause(run, "gives_up").startswith("rank 0 died in build: exit code 70")
    assert _cause(run, "opens").startswith("no file handles left")


@pytest.mark.skipif(sys.platform != "linux", reason="limits the data segment")
def test_memory_that_the_machine_refuses_to_a_run_without_a_budget_is_not_measured(
    run: Measure,
) -> None:
    assert _cause(run, "grows").startswith("not enough memory for rank 0 in forward")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: Launcher) -> Path:
    """This machine's folder of traces, elsewhere."""
    monkeypatch.setattr(machine, "TRACES", tmp_path)
    monkeypatch.setattr(machine, "THIS_MACHINE", tmp_path / "this-machine")
    machine.describe.cache_clear()
    return measure.folder()


def _killing(monkeypatch: pytest.MonkeyPatch, experiment: str, run: str) -> None:
    """Kill a rank of one run as soon as it has started, as the kernel or a person would."""
    whole, start = Launcher.run_pass, ForkServer.start
    asked: list[str] = []

    def named(launcher: Launcher, one, name: str, *more: object):
        asked.append(f"{one.name}.{name}")
        return whole(launcher, one, name, *more)

    def killed(server: ForkServer, requests: list) -> list[int]:
        pids = start(server, requests)
        if asked[-1] == f"{experiment}.{run}":
            os.kill(pids[0], signal.SIGKILL)
        return pids

    monkeypatch.setattr(Launcher, "run_pass", named)
    monkeypatch.setattr(ForkServer, "start", killed)


def test_a_rank_that_somebody_kills_leaves_the_trace_and_the_next_run_measures_the_rest(
    folder: Path, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = list(find("heavier").runs)
    one = pending("heavier", folder, full=True)
    assert one is not None
    before = measure.measure(one, launcher, Progress(io.StringIO()))
    path = folder / "heavier.json"
    old = path.read_bytes()
    again = pending("heavier", folder, full=True, force=True)
    assert again is not None
    with monkeypatch.context() as patched:
        _killing(patched, "heavier", runs[0])
        with pytest.raises(UnfinishedError, match=f"heavier.{runs[0]}: rank 0 died in"):
            measure.measure(again, launcher, Progress(io.StringIO()))
    assert path.read_bytes() == old
    assert list(read(part_of("heavier", folder)).runs) == runs[1:]
    later = pending("heavier", folder)
    assert later is not None
    assert (later.reason, later.measured) == ("unfinished", (runs[0],))
    after = measure.measure(later, launcher, Progress(io.StringIO()))
    assert list(after.runs) == list(before.runs)
    assert not part_of("heavier", folder).exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder that takes six MiB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(place)]
    if os.geteuid() or not shutil.which("mount") or subprocess.run(command).returncode:
        pytest.skip("only root can mount a small disk, and here it cannot")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def _command(
    root: Path,
    traces: Path,
    experiments: Path,
    temporary: Path | None = None,
    code: int = 1,
    under: tuple[str, ...] = (),
) -> str:
    """What `run full` says on standard error, in an environment of its own."""
    environment = {**os.environ, MORE: str(experiments), "PROOFBOOK_TRACES": str(traces)}
    environment |= {"TMPDIR": str(temporary)} if temporary else {}
    done = subprocess.run(
        [*under, sys.executable, "-m", "runners", "run", "full", "--force"],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def experiments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the experiment `full`: a run that is well, and one that fills the disk."""
    place = tmp_path_factory.mktemp("experiments")
    source = (EXPERIMENTS / "wanting.py").read_text()
    keep = source.index("RUNS = {"), source.index("STRATEGIES = {")
    only = (
        'RUNS = {"well": RunPlan("well", 2, passes=TIMED), '
        '"fills": RunPlan("fills", 2, {"num_bytes": 8 * MEBIBYTE}, passes=TIMED)}\n'
    )
    (place / "full.py").write_text(source[: keep[0]] + only + source[keep[1] :])
    return place


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, root: Path, experiments: Path) -> Path:
    """A folder of traces in which `full` was measured while nothing was wanting."""
    traces = tmp_path_factory.mktemp("measured") / "traces"
    _command(root, traces, experiments, code=0)
    return traces


@pytest.fixture
def traces(measured: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it, whose trace stays as it is whatever a command then lacks."""
    copy = Path(shutil.copytree(measured, tmp_path / "traces"))
    (trace,) = copy.rglob("full.json")
    before = trace.read_bytes()
    yield copy
    assert trace.read_bytes() == before


def test_a_full_temporary_folder_is_named_and_costs_no_trace(
    traces: Path, root: Path, small_disk: Path, experiments: Path
) -> None:
    said = _command(root, traces, experiments, small_disk)
    assert f"not measured: full.fills: no space left in {small_disk}" in said
    (part,) = traces.rglob(".full.part")
    assert list(read(part).runs) == ["well"]


def test_without_a_network_interface_nothing_is_measured_and_the_trace_stays(
    traces: Path, root: Path, experiments: Path
) -> None:
    own_network = ("unshare", "--net")  # in which nobody has brought loopback up
    if not shutil.which(own_network[0]) or subprocess.run([*own_network, "true"]).returncode:
        pytest.skip("only root can take the network away, and here it cannot")
    said = _command(root, traces, experiments, under=own_network)
    (line,) = [line for line in said.splitlines() if line.startswith("not measured: full.well: ")]
    assert "`ip link set lo up`" in line
    assert "surprise" not in said


def _ended(kind: str, phase: str, message: str) -> RankOutcome:
    failure = {"kind": kind, "message": message, "rank": 0, "phase": phase}
    status = "deadlocked" if kind == "hang" else "failed"
    return RankOutcome.model_validate({"rank": 0, "status": status, "failure": failure})


@pytest.mark.usefixtures("launcher")  # which finds the tests' experiments
def test_a_failure_before_the_strategy_is_called_is_no_evidence_and_one_in_it_is(
    tmp_path: Path,
) -> None:
    plan = find("hangs").runs["order_swapped"]  # which is meant to hang
    for phase, is_evidence in (("start", False), ("warm_up", False), ("collective", True)):
        ends = [_ended("hang", phase, f"rank 0 stood still in {phase}")]
        assert (not_measured.cause(plan, "timed", ends, tmp_path) is None) == is_evidence
