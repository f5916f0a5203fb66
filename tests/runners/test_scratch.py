"""Scratch folders of launchers go with their owner."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for temporary files of each test's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_it_goes_where_its_owner_is_stopped_while_it_loads_a_module(place: Path, root: Path):
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
