"""Another user of the machine foresees the names of the files of a launch, and is there first."""

import os
import pickle
import shutil
import tempfile
from pathlib import Path

import numpy
import pytest
import torch

from proofbook.companions.verify import launch
from proofbook.companions.verify.board import Board
from proofbook.companions.verify.roots import copied_setting
from proofbook.runners.__main__ import main
from proofbook.runners.core.system import processes
from proofbook.runners.system.errors import FixableError
from tests.processes import python
from tests.verify.ranks import PROGRAMS

NOBODY, PORT = 65534, 29500
OWN = f"proofbook-{os.geteuid()}"
LAUNCH = f"verify-{os.getppid()}-{processes.start_ticks(os.getppid())}-{PORT}-0"  # as anyone sees
# In Python 3.12, `fork` warns of threads, such as those of torch.
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, sentinel):
        self.sentinel = str(sentinel)

    def __reduce__(self):
        return os.mkdir, (self.sentinel,)


@pytest.fixture
def shared(monkeypatch):
    """A folder for temporary files in which every user may write."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o1777)
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    shutil.rmtree(folder)


def _as_nobody(do):
    """Call a function as another user, in a process of its own."""
    if not (pid := os.fork()):
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            do()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _plant(folder, sentinel):
    """Lay a folder of a launch there, with what each file of it would be called."""
    (folder / LAUNCH).mkdir(parents=True)
    for name in ("code.0", "seen.0", "batches.0", "one.inputs"):
        torch.save(Payload(sentinel), folder / LAUNCH / name)
        (folder / LAUNCH / name).chmod(0o644)
    (folder / LAUNCH).chmod(0o777)
    folder.chmod(0o777)


def _his_folder(shared, sentinel):
    _as_nobody(lambda: _plant(shared / OWN, sentinel))


def _his_closed_folder(shared, sentinel):
    _his_folder(shared, sentinel)
    _as_nobody(lambda: (shared / OWN).chmod(0o700))


def _his_link_to_his_folder(shared, sentinel):
    _as_nobody(lambda: _plant(shared / "his", sentinel))
    _as_nobody(lambda: (shared / OWN).symlink_to("his"))


def _his_link_to_our_folder(shared, sentinel):
    _plant(shared / "ours", sentinel)
    (shared / "ours").chmod(0o700)
    _as_nobody(lambda: (shared / OWN).symlink_to("ours"))


def _his_file(shared, sentinel):
    _as_nobody((shared / OWN).touch)


def _our_open_folder(shared, sentinel):
    (shared / OWN).mkdir()
    (shared / OWN).chmod(0o777)
    _as_nobody(lambda: _plant(shared / OWN / "his", sentinel))
    _as_nobody(lambda: (shared / OWN / "his" / LAUNCH).rename(shared / OWN / LAUNCH))


@needs_root
@pytest.mark.parametrize(
    "plant",
    [_his_folder, _his_closed_folder, _his_link_to_his_folder, _his_link_to_our_folder, _his_file,
     _our_open_folder],
)  # fmt: skip
def test_a_name_that_is_taken_is_refused_in_a_line_and_nothing_there_is_read_or_removed(
    plant, shared, capsys
):
    sentinel = shared / "executed"
    plant(shared, sentinel)
    before = sorted(shared.rglob("*"))
    for begin in (lambda: Board(0, 2, PORT), launch.sweep):
        with pytest.raises(FixableError, match=f"{OWN} must be a folder that only you can enter"):
            begin()
    assert main(["verify", "--ranks", "2", str(PROGRAMS / "language.py")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "set TMPDIR" in line
    assert sorted(shared.rglob("*")) == before
    for planted in shared.rglob("seen.0"):  # which is dangerous
        torch.load(planted, weights_only=False)
        assert sentinel.exists()


@needs_root
@pytest.mark.builds
def test_the_one_process_reads_no_inputs_of_another_user(shared):
    _his_folder(shared, shared / "executed")
    words = ("--as-one", str(shared / OWN / LAUNCH), str(PROGRAMS / "language.py"))
    done = python("-m", "proofbook.companions.verify", *words)
    assert done.returncode == 2
    assert "it belongs to user 65534" in done.stderr
    assert not (shared / "executed").exists()


@needs_root
def test_a_folder_put_in_the_place_of_ours_changes_nothing(shared):
    shared.chmod(0o777)  # without the sticky bit, anybody may rename what is in it
    boards = [Board(rank, 2, PORT) for rank in range(2)]
    _as_nobody(lambda: (shared / OWN).rename(shared / "away"))
    _his_folder(shared, shared / "executed")
    assert boards[0].first("code") is None
    boards[1].post("code", 3)
    assert boards[0].first("code") == 3
    boards[0].remove()
    assert list((shared / "away").iterdir()) == []
    assert (shared / OWN / LAUNCH / "seen.0").exists()
    with pytest.raises(FixableError):
        launch.sweep()
    assert not (shared / "executed").exists()


def test_a_record_of_another_class_is_not_loaded(shared):
    sentinel, boards = shared / "executed", [Board(rank, 2, PORT) for rank in range(2)]
    boards[1].post("seen", Payload(sentinel))
    with pytest.raises(pickle.UnpicklingError):
        boards[0].read("seen", 1)
    assert not sentinel.exists()


def test_settings_of_any_class_are_recorded_such_that_other_ranks_load_them(shared):
    own = [numpy.float64(0.5), numpy.int64(3), (0.9, numpy.float32(0.5)), Payload("x"), len, None]
    boards = [Board(rank, 2, PORT) for rank in range(2)]
    boards[1].post("seen", [copied_setting(value) for value in own])
    name = f"<{__name__}.Payload object>"
    plain = [0.5, 3, (0.9, 0.5), name, "<built-in function len>", None]
    assert boards[0].read("seen", 1) == plain
