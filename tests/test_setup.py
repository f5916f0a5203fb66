"""Set-up: which Python it takes, what it pins, and that a second call costs nothing."""

import importlib.metadata
import re
import shutil
import subprocess
import tomllib
from itertools import chain

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from proofbook.runners.core.trace.machine import pinned
from requirements import install


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
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "3.11" in said[0]
    assert "3.9" in said[0]


def test_a_python_without_venv_is_refused_with_what_to_install(capsys, monkeypatch):
    monkeypatch.setattr(install.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        install.check_python((3, 12, 0))
    assert capsys.readouterr().err.splitlines() == [
        "proofbook: this Python lacks venv; on Debian or Ubuntu: apt-get install python3-venv"
    ]


def test_every_direct_dependency_is_pinned_within_its_range(root):
    """Torch by its range: the hashes of its builds differ, and `install.py` leaves it to pip."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    pins = _pins() | {"torch": importlib.metadata.version("torch").partition("+")[0]}
    for needed in map(Requirement, [*project["dependencies"], *chain(*extras.values())]):
        assert needed.specifier.contains(pins[canonicalize_name(needed.name)]), needed


def test_traces_are_compared_with_what_set_up_installs(root):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    run = {one.name: one for one in map(Requirement, project["optional-dependencies"]["run"])}
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
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    table = (root / "requirements" / "README.md").read_text().partition("## Dependencies")[2]
    direct = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    rows = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)
    told = {name for row in rows for name in re.split(r",? ", row)}
    assert [need for need in direct if Requirement(need).name not in told] == []


def test_a_second_set_up_does_nothing(root, tmp_path):
    """Beside this environment, not in it: other tests import from that meanwhile."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(root / name, tmp_path)
    shutil.copytree(root / "requirements", tmp_path / "requirements")
    (tmp_path / ".venv").mkdir()
    words = ["make", "PYTHON=echo", ".venv/.test"]
    first, second = (
        subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert "requirements/install.py test" in first
    assert "install.py" not in second
