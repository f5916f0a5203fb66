"""Ranks and launchers killed at any moment: one clear end, a whole trace, no process left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.trace import read
from tests.conftest import copy_of_the_book

NUM_KILLS = 12
PATIENCE_SECONDS = 180
pytestmark = [
    pytest.mark.soak,
    pytest.mark.ranks,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]


def _parents() -> dict[int, int]:
    """Process id → its parent's."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            found[int(stat.parent.name)] = int(fields[1])
    return found


def _below(pid: int) -> list[set[int]]:
    """Children, grandchildren, … of a process."""
    parents = _parents()
    generations: list[set[int]] = []
    current = {pid}
    while current := {child for child, parent in parents.items() if parent in current}:
        generations.append(current)
    return generations


def _wait_for_ranks(launcher: subprocess.Popen) -> list[int]:
    """Ranks are the children of forkservers, which are children of the launcher."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end and launcher.poll() is None:
        generations = _below(launcher.pid)
        if len(generations) > 1:
            return sorted(generations[1])
        time.sleep(0.01)
    raise AssertionError(f"no rank appeared; exit code {launcher.poll()}")


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    return copy_of_the_book(tmp_path_factory.mktemp("kills") / "copy")


@pytest.fixture
def launcher(copy) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(
        [sys.executable, "-m", "runners", "run", "batch_split", "--force"],
        cwd=copy,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    yield process
    process.kill()
    process.communicate()


def _none_left(pids: set[int]) -> bool:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        if not pids & set(_parents()):
            return True
        time.sleep(0.05)
    return False


def _half_files(copy: Path) -> list[Path]:
    """A trace in the making is a hidden file beside its place."""
    return list((copy / "content" / "traces").rglob(".*.json.*"))


@pytest.mark.parametrize("attempt", range(NUM_KILLS))
def test_a_killed_rank_ends_its_run_and_not_the_experiment(copy, launcher, attempt):
    chance = random.Random(attempt)
    ranks = _wait_for_ranks(launcher)
    time.sleep(chance.uniform(0, 2))
    family = set().union(*_below(launcher.pid))
    alive = sorted(_below(launcher.pid)[-1]) if len(_below(launcher.pid)) > 1 else ranks
    try:
        os.kill(chance.choice(alive), signal.SIGKILL)
    except ProcessLookupError:
        pytest.skip("that rank had just ended")
    said, _ = launcher.communicate(timeout=PATIENCE_SECONDS)
    assert launcher.returncode in (0, 1), said  # 0: killed between two passes
    if launcher.returncode == 1:
        assert "died" in said or "SIGKILL" in said, said
    assert _none_left(family)
    assert _half_files(copy) == []
    for path in (copy / "content" / "traces").glob("cpu-*/batch_split.json"):
        read(path)


@pytest.mark.parametrize("attempt", range(3))
def test_a_killed_launcher_leaves_no_process_and_no_half_file(copy, launcher, attempt):
    _wait_for_ranks(launcher)
    time.sleep(random.Random(attempt).uniform(0, 2))
    family = set().union(*_below(launcher.pid))
    launcher.kill()
    launcher.wait()
    assert _none_left(family)
    assert _half_files(copy) == []
