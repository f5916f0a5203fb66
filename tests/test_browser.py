"""Finding a browser: on PATH, by a package manager, or one clear line."""

import os
import sys
from pathlib import Path

import pytest

from tests import browser as browsers
from tests.processes import ran


def test_a_missing_browser_is_installed_by_the_package_manager(tmp_path, monkeypatch):
    monkeypatch.setattr(browsers, "ON_MACOS", ())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    script = f'case "$*" in *headless-shell) exit 100;; *) /bin/cp -p $0 {tmp_path}/chromium;; esac'
    (tmp_path / "apt-get").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "apt-get").chmod(0o755)
    assert browsers.install_browser() == tmp_path / "chromium"


def test_no_browser_and_no_way_to_get_one_is_one_line(tmp_path):
    done = ran([sys.executable, browsers.__file__], tmp_path, {"PATH": str(tmp_path)})
    if browsers.find_browser() in map(Path, browsers.ON_MACOS):
        pytest.skip("macOS finds Chrome outside PATH")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "Chromium" in done.stderr
