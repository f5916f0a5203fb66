"""A run that fails for want of the machine is no evidence: it is told, and the trace stays."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

from proofbook.runners.core.declared.experiment import find
from proofbook.runners.core.measuring import endings, measure
from proofbook.runners.core.measuring.endings import NotMeasuredError, UnfinishedError
from proofbook.runners.core.measuring.forkserver import ForkServer
from proofbook.runners.core.trace.outcome import RankOutcome
from proofbook.runners.session.pending import part_of, pending
from proofbook.runners.session.progress import Progress
from proofbook.runners.traces.files import read
from tests.processes import OWN_EXPERIMENTS, ran

pytestmark = pytest.mark.ranks


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("terminated", r"rank 0 died in step: SIGTERM, which this run did not declare"),
        ("gives_up", "rank 0 died in build: exit code 70"),  # it could not report
        ("opens", "no file handles left"),
        ("grows", "not enough memory for rank 0 in forward"),
    ],
)
def test_a_failure_for_want_of_the_machine_is_not_measured(run, name, said):
    if name == "grows" and sys.platform != "linux":
        pytest.skip("limits the data segment")
    with pytest.raises(NotMeasuredError, match=said):
        run("wanting", name)


def _killing(monkeypatch, experiment, run):
    """Kill a rank of one run as soon as it has started, as the kernel or a person would."""
    start = ForkServer.start

    def killed(server, requests):
        pids = start(server, requests)
        if (requests[0]["experiment"], requests[0]["run"]) == (experiment, run):
            os.kill(pids[0], signal.SIGKILL)
        return pids

    monkeypatch.setattr(ForkServer, "start", killed)


def test_a_rank_that_somebody_kills_leaves_the_trace_and_the_next_run_measures_the_rest(
    folder, launcher, monkeypatch
):
    runs = list(find("heavier").runs)
    one = pending("heavier", folder, full=True)
    before = measure.measure(one, launcher, Progress())
    path = folder / "heavier.json"
    old = path.read_bytes()
    again = pending("heavier", folder, full=True, force=True)
    with monkeypatch.context() as patched:
        _killing(patched, "heavier", runs[0])
        with pytest.raises(UnfinishedError, match=f"heavier.{runs[0]}: rank 0 died in"):
            measure.measure(again, launcher, Progress())
    assert path.read_bytes() == old
    assert list(read(part_of("heavier", folder)).runs) == runs[1:]
    later = pending("heavier", folder)
    assert (later.reason, later.measured) == ("unfinished", (runs[0],))
    after = measure.measure(later, launcher, Progress())
    assert list(after.runs) == list(before.runs)
    assert not part_of("heavier", folder).exists()


@pytest.fixture
def small_disk(tmp_path):
    """A folder that takes six MiB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(place)]
    if os.geteuid() or not shutil.which("mount") or subprocess.run(command).returncode:
        pytest.skip("only root can mount a small disk, and here it cannot")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def _said_by_run(root, place, *under, **variables):
    """What `run full` says on standard error where something is wanting."""
    own = os.environ | OWN_EXPERIMENTS | {"PROOFBOOK_TRACES": str(place / "traces")} | variables
    done = ran([*under, sys.executable, "-m", "runners", "run", "full"], root, own)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert not list(place.glob("traces/**/full.json"))
    return done.stderr


def test_a_full_temporary_folder_is_named_and_keeps_what_was_measured(tmp_path, root, small_disk):
    said = _said_by_run(root, tmp_path, TMPDIR=str(small_disk))
    assert said.count(f"not measured: no space left in {small_disk}") == 1
    assert "not measured, for the causes above: full.fills" in said
    (part,) = tmp_path.glob("traces/**/.full.part")
    assert list(read(part).runs) == ["well"]


def test_without_a_network_interface_nothing_is_measured(tmp_path, root):
    own_network = ("unshare", "--net")  # in which nobody has brought loopback up
    if not shutil.which(own_network[0]) or subprocess.run([*own_network, "true"]).returncode:
        pytest.skip("only root can take the network away, and here it cannot")
    said = _said_by_run(root, tmp_path, *own_network)
    assert said.count("`ip link set lo up`") == 1
    assert "not measured, for the causes above: full.well" in said
    assert "surprise" not in said


def _ended(kind, phase, message):
    failure = {"kind": kind, "message": message, "rank": 0, "phase": phase}
    status = "deadlocked" if kind == "hang" else "failed"
    return RankOutcome.model_validate({"rank": 0, "status": status, "failure": failure})


@pytest.mark.usefixtures("launcher")  # which finds the tests' experiments
def test_a_failure_before_the_strategy_is_called_is_no_evidence_and_one_in_it_is(tmp_path):
    declaration = find("hangs").runs["order_swapped"]  # which is meant to hang
    for phase, is_evidence in (("start", False), ("warm_up", False), ("collective", True)):
        ends = [_ended("hang", phase, f"rank 0 stood still in {phase}")]
        assert (
            endings.why_not_measured(declaration, "timed", ends, tmp_path) is None
        ) == is_evidence
