"""Launchers killed at any moment: every process ends, what is left is swept, no trace suffers."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from runners.system import links
from runners.traces.files import read, sweep_torn
from runners.traces.records import Trace
from tests.soak import kills
from tests.soak.processes import below

NUM_RANK_KILLS = 4  # of one command's ranks; those of every experiment are killed elsewhere
LOAD_SECONDS = 8.0  # until the first ranks run, about
WORK_SECONDS = 4.0  # of ranks
pytestmark = [
    pytest.mark.soak,
    pytest.mark.ranks,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]


def _marked(place: Path) -> list[int]:
    """Processes whose environment names this place: a launcher and all that came of it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str(place).encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:  # it has ended
            continue
    return found


def parsed(path: Path, text: bytes) -> Trace:
    """A trace as its file was."""
    kept = path.with_suffix(".before")
    kept.write_bytes(text)
    try:
        return read(kept)
    finally:
        kept.unlink()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("killed")


@pytest.fixture(scope="module")
def environment(place: Path) -> dict[str, str]:
    (place / "scratch").mkdir()
    own = {"TMPDIR": str(place / "scratch"), "PROOFBOOK_TRACES": str(place / "traces")}
    return {**os.environ, **own}


@pytest.fixture(scope="module")
def traces(place: Path, environment: dict[str, str]) -> Path:
    """The folder that a run here writes: it holds a whole trace of every experiment already."""
    program = "from runners.measuring import measure; print(measure.folder())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=kills.ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    folder = Path(done.stdout.strip())
    reference = next((kills.ROOT / "content" / "traces").glob("reference-*"))
    shutil.copytree(reference, folder)
    return folder


@pytest.fixture
def launcher(
    environment: dict[str, str], launcher_kill: tuple[int, str]
) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(
        [sys.executable, "-m", "runners", "run", launcher_kill[1], "--force"],
        cwd=kills.ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    yield process
    if process.poll() is None:
        process.kill()
        process.communicate()


def _wait_for_ranks(launcher: subprocess.Popen) -> list[int]:
    """The processes below forkservers, once there are some; none where the launcher has ended."""
    ranks: list[int] = []
    while not ranks and launcher.poll() is None:
        time.sleep(0.01)
        ranks = sorted(set().union(*below(launcher.pid)[1:]))
    return ranks


def test_a_killed_launcher_leaves_no_process_and_no_other_trace(
    launcher, launcher_kill, place, traces
):
    attempt, name = launcher_kill
    trace = traces / f"{name}.json"
    before = trace.read_bytes()
    chance = random.Random(f"{kills.SEED} launcher {attempt}")
    if attempt % 2:  # while ranks run; else at any moment, most of them before
        _wait_for_ranks(launcher)
    time.sleep(chance.uniform(0, WORK_SECONDS if attempt % 2 else LOAD_SECONDS))
    has_ended = launcher.poll() is not None
    family = _marked(place)
    launcher.kill()
    killed_at = time.monotonic()
    while _marked(place) and time.monotonic() - killed_at < kills.NAMED_WITHIN_SECONDS:
        time.sleep(0.01)
    took = time.monotonic() - killed_at
    said, _ = launcher.communicate()
    print(f"{name}: {len(family)} processes, all gone after {took:.2f} s")
    assert _marked(place) == []
    assert "Traceback" not in said
    if not has_ended:
        if trace.read_bytes() != before:  # it had measured all of it: whole, and nothing lost
            old, new = parsed(trace, before), read(trace)
            assert new.recorded_at > old.recorded_at
            assert set(new.runs) == set(old.runs)
            assert [run for run in new.runs if new.runs[run].is_surprise] == []
        kills.seen.append(kills.Seen("launcher_kill", False, took))
    if (part := traces / f".{name}.part").exists():
        assert read(part).runs
    # What the next start does.
    links.sweep()
    sweep_torn(place / "traces")
    assert not [path for path in links._names() if path.startswith(f"proofbook-{launcher.pid}-")]
    hidden = {path.name for path in traces.glob(".*")}
    assert hidden <= {f".{one}.part" for one in kills.names()}


@pytest.mark.parametrize("attempt", range(NUM_RANK_KILLS))
def test_a_killed_rank_ends_its_run_and_the_command_goes_on(attempt, place, environment, traces):
    chance = random.Random(f"{kills.SEED} command {attempt}")
    command = subprocess.Popen(
        [sys.executable, "-m", "runners", "run", "batch_split", "--force"],
        cwd=kills.ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    ranks = _wait_for_ranks(command)
    time.sleep(chance.uniform(0, 2))
    ranks = sorted(set().union(*below(command.pid)[1:])) or ranks
    with suppress(ProcessLookupError):  # it came too late
        os.kill(chance.choice(ranks), signal.SIGKILL)
    said, _ = command.communicate()
    assert command.returncode in (0, 1), said  # 0: killed between two passes
    assert ("SIGKILL" in said) == (command.returncode == 1), said
    assert _marked(place) == []
    assert not list((place / "scratch").glob("proofbook-*"))  # torch keeps a cache beside ours
    read(traces / "batch_split.json")
