"""Limits of the shell that are too low: one line that names the limit and what to do."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from runners.system import limits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems limit otherwise")
TOO_FEW_KIBIBYTES = 300_000  # torch's library alone takes more addresses
TOO_FEW_FILES = 10


def _said(command: list[str], number: int, allowed: int, place: Path, root: Path) -> str:
    """The one line that a command says under a limit, before it ends with 2."""
    _, hard = resource.getrlimit(number)
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=root,
        env={
            **os.environ,
            "PROOFBOOK_EXPERIMENTS": str(Path(__file__).parent / "experiments"),
            "PROOFBOOK_TRACES": str(place / "traces"),
            "TMPDIR": str(place),
        },
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(number, (allowed, hard)),
    )
    assert done.returncode == 2, done.stderr
    assert not list(place.glob("proofbook-*"))
    assert not list(place.glob("traces/*/*.json"))
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("python")]
    assert "Traceback" not in done.stderr
    return line


@pytest.mark.parametrize("command", [["runners", "list"], ["runners.cluster", "ddp"]])
def test_too_few_addresses_for_torch_are_one_line_that_says_what_to_raise(
    command: list[str], tmp_path: Path, root: Path
) -> None:
    allowed = TOO_FEW_KIBIBYTES * 1024
    line = _said(command, resource.RLIMIT_AS, allowed, tmp_path, root)
    assert f"`ulimit -v` allows {TOO_FEW_KIBIBYTES} KiB" in line
    assert "raise it with `ulimit -v unlimited`" in line


@pytest.mark.ranks
@pytest.mark.parametrize("command", [["runners", "run", "heavier"], ["runners.cluster", "heavier"]])
def test_too_few_open_files_for_the_ranks_are_one_line_that_says_what_to_raise(
    command: list[str], tmp_path: Path, root: Path
) -> None:
    line = _said(command, resource.RLIMIT_NOFILE, TOO_FEW_FILES, tmp_path, root)
    assert f"`ulimit -n` allows {TOO_FEW_FILES} open files" in line
    assert "raise it with `ulimit -n " in line


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Limits as a test sets them; what it does not set is unlimited."""
    found: dict[int, int] = {}
    infinite = resource.RLIM_INFINITY
    monkeypatch.setattr(
        limits.resource, "getrlimit", lambda number: (found.get(number, infinite), infinite)
    )
    return found


@pytest.mark.parametrize(
    ("number", "option"),
    [(resource.RLIMIT_AS, "-v"), (resource.RLIMIT_NPROC, "-u")],
)
def test_a_thread_that_cannot_start_is_put_down_to_the_limit_that_is_set(
    number: int, option: str, allowed: dict[int, int]
) -> None:
    allowed[number] = 1
    line = limits.blamed("RuntimeError: can't start new thread")
    assert line is not None
    assert f"`ulimit {option}`" in line


def test_a_thread_that_cannot_start_far_below_the_limit_is_put_down_to_the_container(
    allowed: dict[int, int],
) -> None:
    allowed[resource.RLIMIT_NPROC] = 1 << 20
    line = limits.blamed("BlockingIOError: [Errno 11] Resource temporarily unavailable")
    assert line is not None
    assert "ulimit" not in line
    assert "pids.max" in line


@pytest.mark.parametrize(
    ("number", "words", "named"),
    [
        (resource.RLIMIT_FSIZE, "OSError: [Errno 27] File too large", "`ulimit -f` allows 4 KiB"),
        (resource.RLIMIT_CPU, "rank 0 died in step: SIGXCPU", "`ulimit -t` allows 4096 seconds"),
    ],
)
def test_what_a_limit_on_files_or_on_processor_time_ends_is_put_down_to_it(
    number: int, words: str, named: str, allowed: dict[int, int]
) -> None:
    assert limits.blamed(words) is None
    allowed[number] = 4096
    assert named in str(limits.blamed(words))


def test_where_nothing_is_limited_no_limit_is_blamed(allowed: dict[int, int]) -> None:
    assert limits.blamed("Cannot allocate memory") is None
    assert not limits.refuses_addresses(1 << 40)


def test_a_budget_that_refuses_is_not_taken_for_a_limit_far_above_it(
    allowed: dict[int, int],
) -> None:
    allowed[resource.RLIMIT_AS] = 1 << 46
    assert not limits.refuses_addresses(1 << 30)
    allowed[resource.RLIMIT_AS] = 1 << 29
    assert limits.refuses_addresses(1 << 30)
