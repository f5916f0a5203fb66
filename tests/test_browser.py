"""Finding a browser: on PATH, by a package manager, or one clear line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import browser as browsers


def _program(folder: Path, name: str, script: str = "") -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def _copying(program: Path) -> str:
    """What a package manager does, where a shell finds no program: bring one."""
    return f"/bin/cp -p $0 {program}"


def test_a_missing_browser_is_installed_by_the_package_manager(tmp_path, monkeypatch):
    monkeypatch.setattr(browsers, "ON_MACOS", ())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    made = _copying(tmp_path / "chromium")
    _program(tmp_path, "apt-get", f'case "$*" in *headless-shell) exit 100;; *) {made};; esac')
    assert browsers.install_browser() == tmp_path / "chromium"


def test_the_gate_adds_the_headless_shell_where_it_can_be_had(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sys, "argv", ["browser.py", "--shell"])
    monkeypatch.setenv("PATH", str(tmp_path))
    _program(tmp_path, "chromium")
    shell = tmp_path / browsers.SHELL
    _program(tmp_path, "apt-get", "exit 100")
    assert browsers.main() == 0
    assert browsers.find_browser() == tmp_path / "chromium"
    _program(tmp_path, "apt-get", _copying(shell))
    assert browsers.main() == 0
    assert browsers.find_browser() == shell


def test_no_browser_and_no_way_to_get_one_is_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, browsers.__file__],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    if browsers.find_browser() in map(Path, browsers.ON_MACOS):
        pytest.skip("macOS finds Chrome outside PATH")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "Chromium" in done.stderr
