"""A command measures whatever its starter made of its standard streams, and leaves nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
EXPERIMENTS = Path(__file__).parent / "experiments"
REFUSED = "standard output did not take all that was printed (No space left on device); "


def _ended(
    redirected: str, place: Path, root: Path, *command: str
) -> subprocess.CompletedProcess[str]:
    """A command whose streams a shell has redirected, in an environment of its own."""
    temporary = place / "temporary"
    temporary.mkdir()
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirected}', "sh", sys.executable, "-m", *command],
        cwd=root,
        env={
            **os.environ,
            "PROOFBOOK_EXPERIMENTS": str(EXPERIMENTS),
            "PROOFBOOK_TRACES": str(place / "traces"),
            "TMPDIR": str(temporary),
        },
        capture_output=True,
        text=True,
    )


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("redirected", "code"),
    [("<&- >&- 2>&-", 0), (">/dev/full", 2), ("2>/dev/full", 0), (">/dev/full 2>/dev/full", 2)],
)
def test_closed_or_full_streams_cost_no_trace_and_leave_no_file(
    redirected: str, code: int, tmp_path: Path, root: Path
) -> None:
    ended = _ended(redirected, tmp_path, root, "runners", "run", "heavier")
    assert ended.returncode == code, ended.stderr
    assert len(list(tmp_path.glob("traces/*/heavier.json"))) == 1
    assert list((tmp_path / "temporary").iterdir()) == []
    if redirected == ">/dev/full":
        assert ended.stderr.endswith(f"{REFUSED}every file that was written is whole\n")
    if redirected == "2>/dev/full":
        assert ended.stdout.startswith("1 measured, 0 already fresh, 0 surprises")


@pytest.mark.parametrize("room", ["runners", "generator"])
@pytest.mark.parametrize(
    ("redirected", "code", "line"), [("<&- >&- 2>&-", 0, ""), (">/dev/full", 2, REFUSED)]
)
def test_a_command_that_only_prints_says_what_nobody_took(
    room: str, redirected: str, code: int, line: str, tmp_path: Path, root: Path
) -> None:
    ended = _ended(redirected, tmp_path, root, room, "schema")
    assert ended.returncode == code
    assert ended.stderr.startswith(line)


@pytest.mark.parametrize("room", ["runners", "generator"])
def test_a_command_that_writes_into_a_pipe_nobody_reads_ends_without_a_word(
    room: str, tmp_path: Path, root: Path
) -> None:
    assert _ended("| true", tmp_path, root, room, "schema").stderr == ""
