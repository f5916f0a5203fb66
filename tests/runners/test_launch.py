"""How runs end, well and badly, and what the launcher says of it."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proofbook.runners.__main__ import main
from proofbook.runners.commands import run as running
from proofbook.runners.core.declared.experiment import find
from proofbook.runners.core.measuring import measure
from proofbook.runners.core.measuring.launch import Launcher, Place
from proofbook.runners.core.system import links
from proofbook.runners.system.errors import LaunchError
from proofbook.runners.traces.summary import how_it_ended
from tests.conftest import wait_until
from tests.processes import OWN_EXPERIMENTS, marked

pytestmark = pytest.mark.ranks
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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ranks_inherit_no_choice_of_nccl_but_the_interface(own_launcher, monkeypatch):
    names = ("NCCL_ALGO", "TORCH_NCCL_BLOCKING_WAIT", "NCCL_SOCKET_IFNAME")
    for name in names:
        monkeypatch.setenv(name, "1")
    own_launcher.run_pass(find("mishaps"), "well", "timed")
    environment = Path(f"/proc/{own_launcher._server('timed')._process.pid}/environ").read_text()
    assert [name for name in names if f"{name}=1" in environment] == ["NCCL_SOCKET_IFNAME"]


def test_the_seconds_of_the_first_pass_hold_no_loading_of_torch(own_launcher):
    before = time.monotonic()
    result = own_launcher.run_pass(find("mishaps"), "well", "timed")
    whole = time.monotonic() - before
    assert result.root_cause is None
    assert whole - result.seconds > LOADING_SECONDS


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
        "odd.crashes: failed in step on rank 0 at small.py:21: ZeroDivisionError: division by "
        "zero, expected completed; to measure again, with the traceback: PROOFBOOK_STDERR=1 "
        "python -m runners run odd --force",
        "odd.surprises: completed, expected out of memory",
    ]
    assert ran.exit_code == 1
    assert (folder / "odd.json").exists()


def test_ranks_that_share_an_accelerator_skip_what_gloo_cannot_move():
    declarations = find("large_model").runs
    reason = measure.cannot_run(declarations["wide_fsdp"], Place("cuda", "gloo"))
    assert "share an accelerator" in reason
    assert measure.cannot_run(declarations["wide_ddp"], Place("cuda", "gloo")) is None
    assert measure.cannot_run(declarations["wide_fsdp"], Place("cuda", "nccl")) is None
