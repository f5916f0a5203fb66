"""Ranks and launchers killed while the command runs: it ends or goes on, with nothing torn."""

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
from tests.soak.processes import below, none_left

NUM_KILLS = 6  # tests/soak/test_any_rank.py kills ranks of every experiment
PATIENCE_SECONDS = 180
pytestmark = [
    pytest.mark.soak,
    pytest.mark.ranks,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]


def _wait_for_ranks(launcher: subprocess.Popen) -> list[int]:
    """Ranks are the children of forkservers, which are children of the launcher."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end and launcher.poll() is None:
        generations = below(launcher.pid)
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


def _half_files(copy: Path) -> list[Path]:
    """A trace in the making is a hidden file beside its place."""
    return list((copy / "content" / "traces").rglob(".*.json.*"))


@pytest.mark.parametrize("attempt", range(NUM_KILLS))
def test_a_killed_rank_ends_its_run_and_not_the_experiment(copy, launcher, attempt):
    chance = random.Random(attempt)
    ranks = _wait_for_ranks(launcher)
    time.sleep(chance.uniform(0, 2))
    family = set().union(*below(launcher.pid))
    alive = sorted(below(launcher.pid)[-1]) if len(below(launcher.pid)) > 1 else ranks
    try:
        os.kill(chance.choice(alive), signal.SIGKILL)
    except ProcessLookupError:
        pytest.skip("that rank had just ended")
    said, _ = launcher.communicate(timeout=PATIENCE_SECONDS)
    assert launcher.returncode in (0, 1), said  # 0: killed between two passes
    if launcher.returncode == 1:
        assert "died" in said or "SIGKILL" in said, said
    assert none_left(family)
    assert _half_files(copy) == []
    for path in (copy / "content" / "traces").glob("cpu-*/batch_split.json"):
        read(path)


@pytest.mark.parametrize("attempt", range(3))
def test_a_killed_launcher_leaves_no_process_and_no_half_file(copy, launcher, attempt):
    _wait_for_ranks(launcher)
    time.sleep(random.Random(attempt).uniform(0, 2))
    family = set().union(*below(launcher.pid))
    launcher.kill()
    launcher.wait()
    assert none_left(family)
    assert _half_files(copy) == []
