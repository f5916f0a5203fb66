"""The Makefile's commands: what they say of themselves, and how they refuse."""

import os
import re
import shutil
import socket

import pytest

from tests.processes import ran

pytestmark = pytest.mark.builds


def _make(root, *arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    return ran(["make", "--no-print-directory", *arguments], root, environment)


def test_make_alone_lists_every_command(root):
    listed = re.findall(r"^  ([a-z]+) ", _make(root).stdout, re.MULTILINE)
    phony = re.search(r"^\.PHONY: (.*)", (root / "Makefile").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(phony.group(1).split())


def test_serve_on_a_port_that_is_taken_is_one_clear_line(root):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = _make(root, "serve", f"PORT={port}")
    ours = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert ours == [f"proofbook: port {port} is taken; try make serve PORT={port + 1}"]
    assert "Error 2" in done.stderr
    assert done.returncode == 2


def test_a_missing_python_is_one_clear_line(root, tmp_path):
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(root / name, tmp_path)
    shutil.copytree(root / "requirements", tmp_path / "requirements")
    done = _make(tmp_path, ".venv/.pages", "PYTHON=no-such-python")
    ours = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert ours == ["proofbook: no no-such-python here; try make PYTHON=…"]
