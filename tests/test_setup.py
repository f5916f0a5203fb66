"""Set-up: which Python it takes, what it pins, the browser; and what make's commands say."""

import importlib.metadata
import os
import re
import shutil
import socket
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from proofbook.runners.core.trace.machine import pinned
from requirements import install
from tests import browser as browsers
from tests.conftest import ROOT
from tests.processes import ran

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
DIRECT = [Requirement(one) for one in (*PROJECT["dependencies"], *chain(*EXTRAS.values()))]


def _lines():
    """Of the pins of all purposes, a line for each package, its hashes in it."""
    texts = (path.read_text().replace("\\\n", "") for path in install.pins("test"))
    return [line for text in texts for line in text.splitlines() if not line.startswith("#")]


def _pins():
    return dict(re.match(r"(\S+)==(\S+) ", line).groups() for line in _lines())


def test_an_old_python_is_refused_in_one_line(capsys):
    with pytest.raises(SystemExit) as stopped:
        install.check_python((3, 9, 2))
    assert stopped.value.code == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "3.11" in said
    assert "3.9" in said


def test_a_python_without_venv_is_refused_with_what_to_install(capsys, monkeypatch):
    monkeypatch.setattr(install.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        install.check_python((3, 12, 0))
    assert capsys.readouterr().err.splitlines() == [
        "proofbook: this Python lacks venv; on Debian or Ubuntu: apt-get install python3-venv"
    ]


def test_every_direct_dependency_is_pinned_within_its_range():
    """Torch by its range: the hashes of its builds differ, and `install.py` leaves it to pip."""
    pins = _pins() | {"torch": importlib.metadata.version("torch").partition("+")[0]}
    for needed in DIRECT:
        assert needed.specifier.contains(pins[canonicalize_name(needed.name)]), needed


def test_traces_are_compared_with_what_set_up_installs():
    run = {one.name: one for one in map(Requirement, EXTRAS["run"])}
    assert pinned("numpy") == _pins()["numpy"]
    assert str(run["torch"].specifier) == f"=={pinned('torch')}"
    assert pinned("pytest") == ""  # which measures nothing


def test_the_oldest_python_installs_every_pin():
    installed = {canonicalize_name(one.name) for one in importlib.metadata.distributions()}
    for name in installed.intersection(_pins()):  # some are for other platforms
        asked = importlib.metadata.metadata(name).get("Requires-Python") or ""
        assert "3.11.0" in SpecifierSet(asked), f"bound {name} in pyproject.toml"


def test_pins_are_exact_have_hashes_and_leave_the_build_of_torch_to_pip():
    names = [line.partition("==")[0] for line in _lines()]
    assert len(names) == len(set(names))
    for line in _lines():
        assert re.fullmatch(
            r"[a-z0-9-]+==[0-9][a-z0-9.]*( ;[^#]+?)?( +--hash=sha256:\w{64})+", line
        )
        assert not line.startswith(("torch==", "nvidia-", "triton", "cuda-"))


def test_every_dependency_says_what_it_is_for(root):
    table = (root / "requirements" / "README.md").read_text().partition("## Dependencies")[2]
    rows = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)
    told = {name for row in rows for name in re.split(r",? ", row)}
    assert [need.name for need in DIRECT if need.name not in told] == []


def _make(root, *arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    return ran(["make", "--no-print-directory", *arguments], root, environment)


def _listed(root):
    return re.findall(r"^  ([a-z]+) ", _make(root).stdout, re.MULTILINE)


@pytest.mark.builds
def test_make_alone_lists_every_command(root):
    listed = _listed(root)
    phony = re.search(r"^\.PHONY: (.*)", (root / "Makefile").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(phony.group(1).split())


def _own_words(done):
    return [line for line in done.stderr.splitlines() if not line.startswith("make")]


@pytest.mark.builds
def test_make_site_builds_a_book_to_open_before_it_installs_torch_and_measures(root):
    said = _make(root, "--dry-run", "--always-make", "site").stdout
    steps = ("install.py pages", "website first", "install.py run", "website site")
    assert sorted(steps, key=said.index) == [*steps]


@pytest.mark.builds
def test_serve_on_a_port_that_is_taken_is_one_clear_line(root):
    """Without set-up: an older environment of this tree, or of several, stays as it is."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = _make(root, "--assume-old", ".venv/.pages", "serve", f"PORT={port}")
    assert _own_words(done) == [f"proofbook: port {port} is taken; try make serve PORT={port + 1}"]
    assert "Error 2" in done.stderr
    assert done.returncode == 2


@pytest.mark.builds
def test_a_missing_python_is_one_clear_line_and_a_second_set_up_does_nothing(root, tmp_path):
    """Beside this environment, not in it: other tests import from that meanwhile."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(root / name, tmp_path)
    shutil.copytree(root / "requirements", tmp_path / "requirements")
    done = _make(tmp_path, ".venv/.pages", "PYTHON=no-such-python")
    assert _own_words(done) == ["proofbook: no no-such-python here; try make PYTHON=…"]
    (tmp_path / ".venv").mkdir(exist_ok=True)
    first, second = (_make(tmp_path, "PYTHON=echo", ".venv/.test").stdout for _ in range(2))
    assert "requirements/install.py test" in first
    assert "install.py" not in second


@pytest.mark.builds
def test_a_workflow_and_a_commit_call_what_a_person_calls(root):
    jobs = yaml.safe_load((root / ".github/workflows/book.yml").read_text())["jobs"]
    steps = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    (hook,) = yaml.safe_load((root / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    called = [re.match(r"make (\w+)|\.ci/run$", command) for command in [*steps, hook["entry"]]]
    assert [one and one[1] for one in called] == [None, "wheel", "publish", "check"]
    assert (root / ".ci/run").is_file()
    assert {one[1] for one in called if one[1]} <= set(_listed(root))
    pythons = jobs["wheel"]["strategy"]["matrix"]["python"]
    assert pythons[0] == ".".join(map(str, install.OLDEST))


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
    (said,) = done.stderr.splitlines()
    assert "Chromium" in said
