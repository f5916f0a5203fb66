"""A clone of the book with what is not committed yet, and commands pasted in it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.processes import ran


def cloned(into: Path) -> Path:
    """Clone the book, and lend the clone this environment."""
    if not (ROOT / ".git").exists():
        pytest.skip("this tree is no clone")
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(into)], check=True)
    _git(into, "reset", "--quiet", "--hard", _git(ROOT, "rev-parse", "HEAD").strip())
    for name in _git(ROOT, "ls-files", "--deleted").splitlines():
        (into / name).unlink(missing_ok=True)
    for name in _git(ROOT, "ls-files", "--modified", "--others", "--exclude-standard").splitlines():
        if (ROOT / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, into / name)
    lend_environment(into)
    return into


def lend_environment(clone: Path) -> None:
    """Let make find this environment, and nothing in the clone that is newer than it."""
    if not (clone / ".venv").exists():
        (clone / ".venv").symlink_to(ROOT / ".venv")
    for path in (clone / "pyproject.toml", *(clone / "requirements").iterdir()):
        os.utime(path, (0, 0))


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


def pasted(command: str, clone: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """A line in a shell, as a reader pastes it, with these variables beside."""
    # What this session of tests set for itself, and what changes a book that is published.
    ours = ("MAKE", "PROOFBOOK", "_PROOFBOOK", "PYTEST", "SOURCE_DATE_EPOCH", "SITE_URL")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    return ran(["bash", "-c", command], clone, environment | more)
