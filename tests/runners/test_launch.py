"""How runs end, well and badly, and what the launcher says of it."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proofbook.runners.__main__ import main
from proofbook.runners.commands import run as running
from proofbook.runners.core.declared.experiment import find
from proofbook.runners.core.measuring import endings, measure
from proofbook.runners.core.measuring.endings import NotMeasuredError, UnfinishedError
from proofbook.runners.core.measuring.forkserver import ForkServer
from proofbook.runners.core.measuring.launch import Launcher
from proofbook.runners.core.system import links
from proofbook.runners.core.trace.outcome import RankOutcome
from proofbook.runners.session.pending import part_of, pending
from proofbook.runners.session.progress import Progress
from proofbook.runners.system.errors import LaunchError
from proofbook.runners.traces.files import read
from proofbook.runners.traces.summary import how_it_ended
from tests.conftest import wait_until
from tests.processes import OWN_EXPERIMENTS, marked, ran

# Python takes memory for objects in arenas of 1 MiB; glibc's heap and page rounding are smaller.
LITTLE_BYTES = 4 << 20
LOADING_SECONDS = 0.5  # that torch takes to load, at the very least


@pytest.fixture
def own_launcher(launcher):
    """A second launcher that a test may spoil; it gives up on quiet ranks after a second."""
    with Launcher("cpu", quiet_seconds=1.0) as started:
        yield started
    assert not started._scratch.path.exists()


def test_a_run_that_completes_says_what_it_printed_and_what_it_saw(run):
    well = run("mishaps", "well")
    assert well.status == "completed"
    assert well.printed == ["all is well"]
    assert [e.loss for e in well.epochs] == [3.0]
    (step,) = well.prediction
    assert step.facts == {"inside": 1, "after": 2}
    assert not well.is_surprise


# Run, how it ended, the rank and the step of the cause, its message, and each rank's failure.
ENDS = [
    ("killed", "died", 1, 2, "rank 1 died in forward: SIGKILL", ["peer_lost", "signal"]),
    ("left", "died", 1, None, "rank 1 died in optimizer: exit code 3", ["peer_lost", "exception"]),
    # Of ranks that hang, the one that fell behind is the cause; where none did, all are named.
    ("hangs", "deadlocked", 1, None, "rank 1 stood still in forward", ["hang", "hang"]),
    ("level", "deadlocked", None, None, "rank 0 stood still in communicate, rank 1 in communicate; "
     "no rank fell behind", ["hang", "hang"]),
    ("raises", "failed", 0, None, "ValueError: labels and samples differ in number",
     ["exception", "peer_lost"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "status", "rank", "step", "said", "failures"), ENDS)
def test_a_bad_end_is_told_with_its_cause(run, name, status, rank, step, said, failures):
    ended = run("mishaps", name)
    assert (ended.status, ended.error.rank, ended.error.step) == (status, rank, step)
    assert ended.error.message.startswith(said)
    assert said in how_it_ended(ended)
    assert [one.failure and one.failure.kind for one in ended.ranks] == failures
    if rank is not None:
        assert ended.ranks[rank].failure == ended.error
    assert not ended.is_surprise  # a death has the declared rank, phase and signal or exit code


@pytest.mark.parametrize(
    ("name", "requested_mib", "held_mib"),
    # In backward: the values, their sine, and the cosine of that, which only the refused operation
    # still holds.
    [("holds", 24, 32), ("holds_gradients", 8, 24)],
)
def test_what_was_held_at_a_refusal_is_what_the_budget_counted(run, name, requested_mib, held_mib):
    refused = run("mishaps", name)
    error, budget = refused.error, refused.budget_bytes
    assert error.requested_bytes == requested_mib << 20
    assert held_mib << 20 <= error.held_bytes <= min((held_mib << 20) + LITTLE_BYTES, budget)
    assert error.held_bytes + error.requested_bytes > budget
    code_bytes = refused.ranks[0].memory.kernel_peak_bytes - (held_mib << 20)
    assert 0 <= code_bytes <= 4 * LITTLE_BYTES  # that ran for the first time


def test_a_loss_that_leaves_the_numbers_is_null_and_listed(run):
    diverged = run("mishaps", "diverges")
    assert diverged.status == "diverged"
    assert None in diverged.step_losses
    assert {n.kind for n in diverged.non_finite} <= {"nan", "inf"}
    assert diverged.non_finite[0].step == diverged.step_losses.index(None)


def test_ranks_inherit_no_choice_of_nccl_and_the_first_pass_takes_no_loading_of_torch(
    own_launcher, monkeypatch
):
    names = ("NCCL_ALGO", "TORCH_NCCL_BLOCKING_WAIT", "NCCL_SOCKET_IFNAME")
    for name in names:
        monkeypatch.setenv(name, "1")
    before = time.monotonic()
    result = own_launcher.run_pass(find("mishaps"), "well", "timed")
    assert result.root_cause is None
    assert time.monotonic() - before - result.seconds > LOADING_SECONDS
    if sys.platform == "linux":
        environ = Path(f"/proc/{own_launcher._server('timed')._process.pid}/environ")
        assert {n for n in names if f"{n}=1" in environ.read_text()} == {"NCCL_SOCKET_IFNAME"}


def test_a_forkserver_that_dies_ends_the_run_at_once_and_in_one_line(own_launcher):
    server = own_launcher._server("timed")
    looks = 0

    def kill(_):
        nonlocal looks
        looks += 1
        server._process.kill()
        server._process.wait()  # what follows is the launcher's answer, however slow the kill

    with pytest.raises(LaunchError, match=r"the forkserver .* ended in the middle of a run"):
        own_launcher.run_pass(find("mishaps"), "hangs", "timed", kill)
    assert looks == 1
    with pytest.raises(LaunchError, match="forkserver"):
        own_launcher.run_pass(find("mishaps"), "well", "timed")


@pytest.mark.ranks
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_run_leaves_no_process_no_link_and_no_half_file(how, tmp_path, root):
    can_link = links.cannot_link() is None
    own = {"PROOFBOOK_TRACES": str(tmp_path), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-m", "runners", "run", "linked" if can_link else "mishaps"],
        cwd=root,
        env={**os.environ, **OWN_EXPERIMENTS, **own},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:

        def spaces():
            return [one for one in links._names() if one.startswith(f"proofbook-{process.pid}-")]

        wait_until(  # itself, a forkserver and two ranks; each rank's namespace, and the switch's
            lambda: len(marked(tmp_path)) >= 4 and len(spaces()) == 3 * can_link,
            meanwhile=lambda: process.poll() is None,
        )
        process.send_signal(how)
        process.send_signal(how)  # as somebody does who cannot wait
        _, said = process.communicate()
    assert process.returncode == (-how if how is signal.SIGKILL else 128 + how)
    assert "Traceback" not in said
    assert said.endswith("kept\n") == (how is not signal.SIGKILL)
    wait_until(lambda: not marked(tmp_path))
    if how is signal.SIGKILL:  # nobody was left to remove them: the next launcher does
        links.sweep()
    assert spaces() == []
    assert not list(tmp_path.glob("*/*.json*"))


@pytest.mark.usefixtures("folder")
def test_a_second_run_at_the_same_time_is_refused_in_one_line(tmp_path, capsys):
    with (tmp_path / ".running").open("w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        holder.write("4711")
        holder.flush()
        assert main(["run", "ddp"]) == 2
    assert capsys.readouterr().err == (
        "python -m runners: another run is measuring here (process 4711); "
        "wait until it has ended, or stop it\n"
    )


def test_a_surprise_is_written_said_in_one_line_and_ends_with_one(folder):
    ran = running.run(running.RunRequest(names=("odd",)))
    assert ran.surprises == [
        "odd.crashes: failed in step on rank 0 at small.py:34: ZeroDivisionError: division by "
        "zero, expected completed; to measure again, with the traceback: PROOFBOOK_STDERR=1 "
        "python -m runners run odd --force",
        "odd.surprises: completed, expected out of memory",
    ]
    assert ran.exit_code == 1
    assert (folder / "odd.json").exists()


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


@pytest.mark.ranks
def test_a_full_temporary_folder_is_named_and_keeps_what_was_measured(tmp_path, root, small_disk):
    said = _said_by_run(root, tmp_path, TMPDIR=str(small_disk))
    assert said.count(f"not measured: no space left in {small_disk}") == 1
    assert "not measured, for the causes above: full.fills" in said
    (part,) = tmp_path.glob("traces/**/.full.part")
    assert list(read(part).runs) == ["well"]


@pytest.mark.ranks
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
