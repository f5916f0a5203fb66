"""The Makefile's commands: what they say of themselves, and how they refuse."""

import os
import re
import shutil
import socket

import pytest
import yaml

from requirements.install import OLDEST
from tests.processes import ran

pytestmark = pytest.mark.builds


def _make(root, *arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    return ran(["make", "--no-print-directory", *arguments], root, environment)


def _listed(root):
    return re.findall(r"^  ([a-z]+) ", _make(root).stdout, re.MULTILINE)


def test_make_alone_lists_every_command(root):
    listed = _listed(root)
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


def test_a_workflow_and_a_commit_call_what_a_person_calls(root):
    jobs = yaml.safe_load((root / ".github/workflows/book.yml").read_text())["jobs"]
    steps = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    (hook,) = yaml.safe_load((root / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    called = [re.match(r"make (\w+)|\.ci/run$", command) for command in [*steps, hook["entry"]]]
    assert [one and one[1] for one in called] == [None, "wheel", "publish", "check"]
    assert (root / ".ci/run").is_file()
    assert {one[1] for one in called if one[1]} <= set(_listed(root))
    pythons = jobs["wheel"]["strategy"]["matrix"]["python"]
    assert pythons[0] == ".".join(map(str, OLDEST))
