"""A watched script killed at any moment: nothing stays, and its files are as without the tool.

make soak ARGS='-k verify_killed --seed 20000'    that day's moments again
"""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
import torch

from proofbook.companions.verify import launch
from tests.conftest import ROOT
from tests.processes import free_port, marked, parent
from tests.verify.ranks import PROGRAMS

MOST_SECONDS = 9.0  # until the kill
WITHIN_SECONDS, WHOLE_SECONDS = 40, 120  # until all have ended; where the kill met nobody
STEPS = 40
VICTIMS = ("launcher", "rank", "interrupted")
OPTIONS = ["--seconds", "1"]
pytestmark = [
    pytest.mark.soak,
    pytest.mark.ranks,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]


def _launcher(name):
    torchrun = ["torch.distributed.run", "--nproc-per-node", "2", f"--master-port={free_port()}"]
    return {
        "plain": torchrun,
        "torchrun": [*torchrun, "-m", "runners.verify", *OPTIONS],
        "own": ["runners", "verify", "--ranks", "2", *OPTIONS],
    }[name]


def _started(launcher, place):
    """A launch in a session of its own, as a terminal has; all it writes lies in the place."""
    for name in ("temporary", "saved"):
        (place / name).mkdir()
    words = [*_launcher(launcher), PROGRAMS / "saving.py", place / "saved", str(STEPS)]
    own = {"TMPDIR": str(place / "temporary"), "OMP_NUM_THREADS": "1"}
    with (place / "output").open("w") as output:
        return subprocess.Popen(
            [sys.executable, "-m", *map(str, words)],
            cwd=ROOT,
            env=os.environ | own,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _saved(place):
    """The tensors of each checkpoint; loading raises where one is torn."""
    return {path.name: torch.load(path) for path in (place / "saved").glob("*.pt")}


def _equal(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    return a == b


@pytest.fixture(scope="module")
def unwatched(tmp_path_factory):
    """What the script saves without the tool."""
    place = tmp_path_factory.mktemp("unwatched")
    assert _started("plain", place).wait(120) == 0
    return _saved(place)


def _ranks(command, place):
    return sorted(pid for pid in marked(place) if parent(pid) == command.pid)


def _kill(victim, command, place, chance):
    """Whether there was something to kill, or to interrupt."""
    ranks = _ranks(command, place)
    if command.poll() is not None or (victim == "rank" and not ranks):
        return False
    if victim == "interrupted":
        os.killpg(command.pid, signal.SIGINT)
    else:
        os.kill(command.pid if victim == "launcher" else chance.choice(ranks), signal.SIGKILL)
    return True


@pytest.mark.parametrize("attempt", range(12))
def test_a_watched_script_killed_at_any_moment_leaves_its_own_files_only(
    attempt, tmp_path, unwatched, seed, monkeypatch
):
    chance = random.Random(f"{seed} {attempt}")
    launcher, victim = ("own", "torchrun")[attempt % 2], VICTIMS[attempt // 2 % 3]
    command, moment = _started(launcher, tmp_path), chance.uniform(0, MOST_SECONDS)
    while victim == "rank" and not _ranks(command, tmp_path) and command.poll() is None:
        time.sleep(0.05)
    time.sleep(moment)
    is_killed = _kill(victim, command, tmp_path, chance)
    end = time.monotonic() + (WITHIN_SECONDS if is_killed else WHOLE_SECONDS)
    while (command.poll() is None or marked(tmp_path)) and time.monotonic() < end:
        time.sleep(0.1)
    left, saved = marked(tmp_path), _saved(tmp_path)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    command.wait()
    said = (tmp_path / "output").read_text()
    print(f"{launcher}, {victim} after {moment:.1f} s ({is_killed}): {len(saved)} checkpoints, "
          f"{command.returncode}; {said.splitlines()[-1:]}")  # fmt: skip
    assert not left, said
    if victim == "launcher":  # nobody was left to remove it: the next start does
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
        launch.sweep()
    assert list((tmp_path / "temporary").glob("proofbook-*/*")) == [], said
    assert all(_equal(one, unwatched[name]) for name, one in saved.items())
