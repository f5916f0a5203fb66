"""Scratch folders of launchers: swept when their owner is dead, and only then."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from runners.system import processes, scratch
from runners.system.scratch import Scratch, sweep

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to know a process")
OWNS = (
    "import time; from runners.system.scratch import Scratch; "
    "s = Scratch(); print(s.path, flush=True)"
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for temporary files of each test's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.fixture
def owned(root: Path) -> tuple[subprocess.Popen, Path]:
    """Another process, alive, and the scratch folder it owns."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"{OWNS}; (s.path / 'heart').touch(); time.sleep(60)"],
        cwd=root,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    yield process, Path(process.stdout.readline().strip())
    process.kill()
    process.communicate()


def test_a_killed_owners_folder_goes_at_the_next_start_and_a_living_owners_stays(owned) -> None:
    process, folder = owned
    mine = Scratch()
    assert folder.is_dir()
    process.kill()
    process.wait()
    other = Scratch()
    assert not folder.exists()
    assert mine.path.is_dir()
    for one in (mine, other):
        one.remove()
        assert not one.path.exists()


def test_a_process_that_got_a_dead_owners_id_is_not_taken_for_it(place: Path) -> None:
    mine = Scratch()
    start = processes.start_ticks(os.getpid())
    left = place / mine.path.name.replace(f"-{start}-", f"-{start - 1}-")
    left.mkdir()
    assert sweep() == [left.name]
    mine.remove()


def test_a_folder_that_a_process_out_of_sight_has_locked_stays(place: Path, owned) -> None:
    """As in a container that shares the folder but not the process ids."""
    process, folder = owned
    unseen = folder.rename(place / folder.name.replace(f"-{process.pid}-", "-999999999-"))
    assert sweep() == []
    process.kill()
    process.wait()
    assert sweep() == [unseen.name]


def test_it_goes_where_its_owner_is_stopped_while_it_loads_a_module(
    place: Path, root: Path
) -> None:
    (place / "stopped.py").write_text("import signal; signal.raise_signal(signal.SIGINT)\n")
    owner = "; ".join([
        "from runners.system import scratch, stopping", "stopping.listen('stopped')",
        "made = scratch.Scratch()", "assert made.folder().exists()", "import stopped",
    ])  # fmt: skip
    found = subprocess.run(
        [sys.executable, "-c", owner], cwd=root, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(place), "TMPDIR": str(place)},
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (130, "stopped\n")
    assert list(place.glob("proofbook-*")) == []


def test_what_is_another_hosts_or_users_or_no_folder_of_ours_stays(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = f"proofbook-{scratch._host()}-999999999-1-abc"
    (place / "proofbook-00000000-999999999-1-abc").mkdir()
    (place / "proofbook-notes").mkdir()
    (place / dead).symlink_to(place / "proofbook-notes")
    assert sweep() == []
    (place / dead).unlink()
    (place / dead).mkdir()
    with monkeypatch.context() as other:
        other.setattr(os, "getuid", lambda: 12345)
        assert sweep() == []
    assert sweep() == [dead]
