"""Commands that are stopped while they load: one line, at once, and nothing is left."""

import os
import signal
import subprocess
import sys

import pytest

from proofbook.runners.core.system.scratch import COMPILED, Scratch
from tests.conftest import wait_until

pytestmark = pytest.mark.builds

# Whoever loads a module cannot rely on an exception: this one swallows whatever is raised in it.
STUBBORN = """
import time, pathlib
pathlib.Path({flag!r}).touch()
end = time.monotonic() + 60
while time.monotonic() < end:
    try:
        time.sleep(1)
    except BaseException:
        pass
"""


def test_an_experiment_that_ends_the_process_is_named(tmp_path):
    (tmp_path / "leaves.py").write_text("import os\nos._exit(0)\n")
    done = subprocess.run(
        [sys.executable, "-m", "proofbook.runners", "run", "leaves"],
        env={**os.environ, "PROOFBOOK_EXPERIMENTS": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "leaves.py:2: SystemExit: os._exit(0); correct this file" in done.stderr
    assert done.returncode == 2


def _stopped(command, how, place, root):
    """Stop a command once it loads the stubborn module in `place`; exit code and lines said."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=root,
        env={
            **os.environ,
            "PYTHONPATH": str(place / "modules"),
            "PROOFBOOK_EXPERIMENTS": str(place / "experiments"),
            "PROOFBOOK_TRACES": str(place / "traces"),
            "TMPDIR": str(place / "scratch"),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until((place / "flag").exists, meanwhile=lambda: process.poll() is None)
        process.send_signal(how)
        _, said = process.communicate()
    finally:
        process.kill()
    return process.returncode, said.splitlines()


@pytest.fixture
def place(tmp_path):
    for name in ("modules", "experiments", "scratch"):
        (tmp_path / name).mkdir()
    return tmp_path


KEPT = "stopped; what was measured before is kept"


@pytest.mark.parametrize(
    ("command", "lines", "how", "code"),
    [
        (["runners.cluster", "ddp"], [KEPT], signal.SIGHUP, 129),
        (["generator", "schema"], ["stopped; run the same command again"], signal.SIGTERM, 143),
        (["proofbook", "list"], [KEPT], signal.SIGINT, 130),
        (["runners", "list"], [KEPT], signal.SIGINT, 130),
        (["runners.verify", "train.py"], [], signal.SIGINT, -signal.SIGINT),  # a rank: no command
    ],
)
def test_a_command_that_is_stopped_while_it_loads_says_so_in_one_line(
    command, lines, how, code, place, root
):
    flag = str(place / "flag")
    (place / "modules" / "pydantic.py").write_text(STUBBORN.format(flag=flag))
    assert _stopped(command, how, place, root) == (code, lines)


@pytest.mark.ranks
def test_forkservers_and_folders_go_too_where_an_experiment_is_being_loaded(place, root):
    (place / "experiments" / "slow.py").write_text(STUBBORN.format(flag=str(place / "flag")))
    ended = _stopped(["runners", "try", "slow.run"], signal.SIGINT, place, root)
    assert ended == (130, [KEPT])
    assert list((place / "scratch").iterdir()) == []


FORKED = """
import os, signal, time
from proofbook.runners.system import stopping

stopping.listen("stopped")
reading, writing = os.pipe()
child = os.fork()
if not child:
    os.write(writing, b"1")
    time.sleep(60)
os.read(reading, 1)
os.kill(child, signal.SIGTERM)
print(os.WTERMSIG(os.waitpid(child, 0)[1]))
"""


def test_a_process_forked_from_a_command_ends_at_once_without_a_word():
    words = [sys.executable, "-c", FORKED]
    told = subprocess.run(words, capture_output=True, text=True, check=True)
    assert (told.stdout, told.stderr) == ("15\n", "")


HELD = """
import os, signal
from proofbook.runners.system import stopping

stopping.listen("stopped")
try:
    with stopping.held():
        os.kill(os.getpid(), signal.SIGTERM)
        raise OSError("no such program")
except stopping.Stopped as stopped:
    print(stopped)
"""


def test_a_signal_that_waited_stops_the_command_also_where_the_block_fails():
    done = subprocess.run([sys.executable, "-c", HELD], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("stopped by SIGTERM\n", "")


def test_what_torch_compiles_goes_with_the_first_folder_and_not_with_one_within(monkeypatch):
    monkeypatch.delenv(COMPILED, raising=False)
    with Scratch() as first:
        with Scratch():
            assert os.environ[COMPILED] == str(first.path / "compiled")
        assert COMPILED in os.environ
    assert COMPILED not in os.environ
