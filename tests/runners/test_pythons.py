"""Which Pythons `make pythons` finds, and what it says of each."""

import os
import sys
from pathlib import Path

from requirements import pythons


def test_each_python_is_found_once_and_old_ones_are_not(monkeypatch, tmp_path):
    for name in ("a/python3.9", "a/python3.91", "b/python3.91", "b/python3.92"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / f"b/python3.{sys.version_info.minor}").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}/a{os.pathsep}{tmp_path}/b")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("PYENV_ROOT", "UV_PYTHON_INSTALL_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert pythons.pythons() == {n: tmp_path / "b" / f"python{n}" for n in ("3.91", "3.92")}


def test_pyenv_and_uv_are_asked_where_they_were_put_and_pypy_is_none(monkeypatch, tmp_path):
    kept = ("py/versions/3.91.2/bin/python3.91", "uv/cpython-3.92.0-linux/bin/python3.92")
    for name in (*kept, "py/versions/pypy3.93-7/bin/python3.93", "uv/pypy-3.94/bin/python3.94"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "py"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    assert list(pythons.pythons().values()) == [tmp_path / name for name in kept]


def test_the_ends_are_tried_a_failure_fails_and_one_that_pip_refuses_is_named(
    monkeypatch, capsys, tmp_path
):
    versions = {f"3.{minor}": tmp_path / str(minor) for minor in (91, 92, 93)}
    monkeypatch.setattr(pythons, "pythons", lambda: versions)
    monkeypatch.setattr(pythons, "set_up", lambda python, folder: python.name != "93")
    monkeypatch.setattr(pythons, "SMOKE", {"meter": []})
    monkeypatch.setattr(pythons, "smoke", lambda python, name: False)
    assert pythons.main() == 1
    said = capsys.readouterr().out
    assert "3.91: meter FAILED" in said
    assert "3.92" not in said
    assert "3.93: not tried" in said
    del versions["3.91"], versions["3.93"]
    monkeypatch.setattr(pythons, "smoke", lambda python, name: True)
    assert pythons.main() == 0
    assert "3.92: meter passed" in capsys.readouterr().out
