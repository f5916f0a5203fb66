"""How runs end, well and badly, and what the launcher says of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runners.measuring.launch import Launcher
from runners.plans.experiment import find
from runners.system.errors import LaunchError
from runners.traces.records import Run
from runners.traces.summary import how_it_ended
from tests.conftest import wait_until

pytestmark = pytest.mark.ranks
Measure = Callable[[str, str], Run]
# Python takes memory for objects in arenas of 1 MiB; glibc's heap and page rounding are smaller.
LITTLE_BYTES = 4 << 20


@pytest.fixture(scope="module")
def own_launcher(launcher: Launcher) -> Iterator[Launcher]:
    """A second launcher that tests may spoil; it gives up on quiet ranks after a second."""
    with Launcher("cpu", quiet_seconds=1.0) as started:
        yield started
    assert not started._scratch.path.exists()


def test_a_run_that_completes_says_what_it_printed_and_what_it_saw(run: Measure) -> None:
    well = run("mishaps", "well")
    assert well.status == "completed"
    assert well.printed == ["all is well"]
    assert [e.loss for e in well.epochs] == [3.0]
    (step,) = well.prediction
    assert step.facts == {"inside": 1, "after": 2}
    assert not well.is_surprise


def test_a_killed_rank_is_named_with_its_phase_step_and_signal(run: Measure) -> None:
    killed = run("mishaps", "killed")
    assert killed.status == "died"
    assert killed.error is not None
    assert (killed.error.rank, killed.error.phase, killed.error.step) == (1, "forward", 2)
    assert (killed.error.signal, killed.error.exit_code) == ("SIGKILL", None)
    assert killed.ranks[1].failure == killed.error
    assert "SIGKILL" in killed.error.message


def test_a_rank_that_leaves_without_a_record_is_named_with_its_exit_code(run: Measure) -> None:
    left = run("mishaps", "left")
    assert left.status == "died"
    assert left.error is not None
    assert (left.error.rank, left.error.phase) == (1, "optimizer")
    assert (left.error.signal, left.error.exit_code) == (None, 3)
    assert left.ranks[1].failure == left.error
    assert "exit code 3" in left.error.message


def test_of_ranks_that_hang_the_one_that_fell_behind_is_the_cause(run: Measure) -> None:
    hung = run("mishaps", "hangs")
    assert hung.status == "deadlocked"
    assert hung.error is not None
    assert (hung.error.rank, hung.error.phase) == (1, "forward")
    assert [r.failure.phase for r in hung.ranks if r.failure] == ["all_reduce", "forward"]


def test_of_ranks_that_hang_alike_none_is_blamed_and_all_are_named(run: Measure) -> None:
    level = run("mishaps", "level")
    assert level.status == "deadlocked"
    assert level.error is not None
    assert (level.error.kind, level.error.rank) == ("hang", None)
    assert level.error.phase == "communicate"
    for rank in (0, 1):
        assert f"rank {rank} " in level.error.message
    assert "None" not in how_it_ended(level)


def test_an_exception_is_the_cause_and_not_the_peer_that_waited_for_it(run: Measure) -> None:
    raised = run("mishaps", "raises")
    assert raised.status == "failed"
    assert raised.error is not None
    assert raised.error.rank == 0
    assert raised.error.message == "ValueError: labels and samples differ in number"
    assert [r.failure.kind for r in raised.ranks if r.failure] == ["exception", "peer_lost"]


@pytest.mark.parametrize(
    ("name", "requested_mib", "held_mib"),
    # In backward: the values, their sine, and the cosine of that, which only the refused operation
    # still holds.
    [("holds", 24, 32), ("holds_gradients", 8, 24)],
)
def test_what_was_held_at_a_refusal_is_what_the_budget_counted(
    run: Measure, name: str, requested_mib: int, held_mib: int
) -> None:
    refused = run("mishaps", name)
    error, budget = refused.error, refused.budget_bytes
    assert error is not None
    assert budget is not None
    assert error.held_bytes is not None
    assert error.requested_bytes == requested_mib << 20
    assert held_mib << 20 <= error.held_bytes <= min((held_mib << 20) + LITTLE_BYTES, budget)
    assert error.held_bytes + error.requested_bytes > budget


def test_a_budget_below_what_the_warm_up_needs_says_so(run: Measure) -> None:
    small = run("mishaps", "too_small")
    assert small.status == "failed"
    assert small.error is not None
    assert small.error.kind == "budget_too_small"
    assert "raise the budget" in small.error.message


def test_a_loss_that_leaves_the_numbers_is_null_and_listed(run: Measure) -> None:
    diverged = run("mishaps", "diverges")
    assert diverged.status == "diverged"
    assert None in diverged.step_losses
    assert {n.kind for n in diverged.non_finite} <= {"nan", "inf"}
    assert diverged.non_finite[0].step == diverged.step_losses.index(None)


def test_a_forkserver_that_dies_ends_the_run_at_once_and_in_one_line(
    own_launcher: Launcher,
) -> None:
    server = own_launcher._server("timed")
    looks = 0

    def kill(_: object) -> None:
        nonlocal looks
        looks += 1
        server._process.kill()
        server._process.wait()  # what follows is the launcher's answer, however slow the kill

    with pytest.raises(LaunchError, match=r"the forkserver .* ended in the middle of a run"):
        own_launcher.run_pass(find("mishaps"), "hangs", "timed", kill)
    assert looks == 1
    with pytest.raises(LaunchError, match="forkserver"):
        own_launcher.run_pass(find("mishaps"), "well", "timed")


def children(pid: int) -> set[int]:
    """Every process below `pid`."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if parent == pid:
                found |= {int(entry.name)} | children(int(entry.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see processes")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_run_leaves_no_process_and_no_half_file(
    how: signal.Signals, tmp_path: Path, root: Path
) -> None:
    environment = {
        **os.environ,
        "PROOFBOOK_EXPERIMENTS": str(Path(__file__).parent / "experiments"),
        "PROOFBOOK_TRACES": str(tmp_path),
        "TMPDIR": str(tmp_path),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "runners", "run", "mishaps"],
        cwd=root,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    below: set[int] = set()

    def ranks_are_there() -> bool:
        below.update(children(process.pid))
        return len(below) >= 3  # a forkserver and two ranks

    wait_until(ranks_are_there, meanwhile=lambda: process.poll() is None)
    process.send_signal(how)
    process.send_signal(how)  # as somebody does who cannot wait
    _, said = process.communicate()
    assert process.returncode == (-how if how is signal.SIGKILL else 128 + how)
    assert "Traceback" not in said
    assert said.endswith("kept\n") == (how is not signal.SIGKILL)
    wait_until(lambda: not any(_lives(pid) for pid in below))
    assert not list(tmp_path.glob("*/*.json*"))


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_second_run_at_the_same_time_is_refused_in_one_line(tmp_path: Path, root: Path) -> None:
    import fcntl

    holder = (tmp_path / ".running").open("w")
    fcntl.flock(holder, fcntl.LOCK_EX)
    holder.write("4711")
    holder.flush()
    done = subprocess.run(
        [sys.executable, "-m", "runners", "run", "ddp"],
        cwd=root,
        env={**os.environ, "PROOFBOOK_TRACES": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    holder.close()
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "python -m runners: another run is measuring here (process 4711); "
        "wait until it has ended, or stop it"
    ]


def test_a_surprise_is_written_said_in_one_line_and_ends_with_one(
    tmp_path: Path, root: Path
) -> None:
    experiments = tmp_path / "experiments"
    experiments.mkdir()
    source = (Path(__file__).parent / "experiments" / "mishaps.py").read_text()
    keep = source.index("RUNS = {"), source.index("STRATEGIES = {")
    only = 'RUNS = {"surprises": RunPlan("well", 2, passes=TIMED, expected="out_of_memory")}\n'
    (experiments / "odd.py").write_text(source[: keep[0]] + only + source[keep[1] :])
    done = subprocess.run(
        [sys.executable, "-m", "runners", "run", "odd"],
        cwd=root,
        env={
            **os.environ,
            "PROOFBOOK_EXPERIMENTS": str(experiments),
            "PROOFBOOK_TRACES": str(tmp_path / "traces"),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if line.startswith("surprise:")]
    assert said == ["surprise: odd.surprises: completed, expected out of memory"]
    assert len(list((tmp_path / "traces").glob("*/odd.json"))) == 1


def test_ranks_that_share_an_accelerator_skip_what_gloo_cannot_move() -> None:
    from runners.measuring import measure

    plans = find("large_model").runs
    reason = measure.cannot_run(plans["wide_fsdp"], device="cuda", backend="gloo")
    assert reason is not None
    assert "share an accelerator" in reason
    assert measure.cannot_run(plans["wide_ddp"], device="cuda", backend="gloo") is None
    assert measure.cannot_run(plans["wide_fsdp"], device="cuda", backend="nccl") is None
