"""The README is true: its tree exists, its links lead somewhere, its commands run as written.

Commands run in a copy of the tree that shares this environment and finds the committed traces
under this machine's own name, so that `make site` has nothing left to measure.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from runners.traces import values
from tests.conftest import ROOT, copy_of_the_book

README = (ROOT / "README.md").read_text(encoding="utf-8")
NOT_HERE = {"make test"}  # that is what runs this test


def _commands() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if line and line not in NOT_HERE]


def _tree() -> list[str]:
    """The paths of the README's tree, each below the folders it is indented under."""
    block = re.search(r"^```text\n(runners/.*?)^```", README, re.MULTILINE | re.DOTALL)
    paths, folders = [], [""]
    for line in block.group(1).splitlines():
        names = re.match(r"( *)((?:\S+  ?)+?) {2,}\S", f"{line}")
        depth = len(names.group(1)) // 2
        paths += ["".join(folders[: depth + 1]) + name for name in names.group(2).split()]
        folders[depth + 1 :] = [names.group(2).split()[0]]
    return paths


def test_the_tree_shows_what_is_there():
    shown = _tree()
    assert len(shown) > 10
    assert [path for path in shown if not (ROOT / path).exists()] == []


def test_links_and_pictures_lead_to_files():
    targets = re.findall(r"\]\(([^)#:]+)\)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_every_make_command_it_names_exists():
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", README, re.MULTILINE))
    known = set(re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"site", "test", "serve"} <= named <= known


@pytest.fixture(scope="session")
def measured_copy(tmp_path_factory) -> Path:
    """A copy of the tree in which this machine has measured everything: the reference's traces."""
    machine = pytest.importorskip("runners.traces.machine")
    copy = copy_of_the_book(tmp_path_factory.mktemp("readme") / "copy")
    shutil.copy2(ROOT / "Makefile", copy)
    shutil.copytree(ROOT / "requirements", copy / "requirements")
    (copy / ".venv").symlink_to(ROOT / ".venv")
    for path in (copy / "pyproject.toml", *(copy / "requirements").iterdir()):
        os.utime(path, (0, 0))  # set up long ago, whatever was edited since
    here = machine.describe().model_dump(mode="json")
    whole, _, part = here["name"].partition("/")
    here["name"] = "/".join(filter(None, (f"{whole.rpartition('-')[0]}-c0ffee", part)))
    (copy / ".machine.json").write_text(json.dumps({here["fingerprint"]: "c0ffee"}))
    traces = copy / "content" / "traces"
    reference = next(traces.glob("reference-*"))
    own = traces / here["name"]
    own.mkdir(parents=True)
    for path in reference.glob("*.json"):
        trace = json.loads(path.read_text(encoding="utf-8"))
        if path.name == "machine.json":
            trace = here
        elif isinstance(trace.get("machine"), str):
            trace["machine"] = here["name"]
        (own / path.name).write_text(json.dumps(trace), encoding="utf-8")
    values.list_values(own)
    return copy


@pytest.fixture(scope="session")
def ran(measured_copy: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Run a command of the README; the second test that looks at it gets what the first one got."""
    ours = ("MAKE", "PROOFBOOK", "PYTEST")  # what this session of tests set for itself
    environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}

    @cache
    def once(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command],
            cwd=measured_copy,
            env={**environment, "PYTHONPATH": ""},
            capture_output=True,
            text=True,
        )

    return once


@pytest.mark.ranks
@pytest.mark.parametrize("command", _commands())
def test_the_command_runs_as_written(ran, command):
    done = ran(command)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.ranks
def test_make_site_builds_the_page_that_it_says_to_open(ran, measured_copy):
    said = ran("make site").stdout.splitlines()[-1]
    page = measured_copy / "site" / "html" / "index.html"
    assert said == f"Open {page}"
    assert page.is_file()
