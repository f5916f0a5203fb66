"""Which Pythons `make pythons` finds, and what it says of each."""

from __future__ import annotations

import importlib.util
import sys

from tests.conftest import ROOT

_spec = importlib.util.spec_from_file_location("pythons", ROOT / "requirements" / "pythons.py")
assert _spec is not None
assert _spec.loader is not None
pythons = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(pythons)


def test_the_newest_patch_of_each_python_is_found_and_old_ones_are_not(monkeypatch, tmp_path):
    installed = {"a": (3, 9, 1), "b": (3, 12, 1), "c": (3, 12, 7), "d": None, "e": (3, 11, 2)}
    monkeypatch.setattr(pythons, "candidates", lambda: [tmp_path / name for name in installed])
    monkeypatch.setattr(pythons, "version_of", lambda path: installed[path.name])
    assert pythons.pythons() == {(3, 11, 2): tmp_path / "e", (3, 12, 7): tmp_path / "c"}


def test_a_smoke_that_fails_fails_the_command_and_one_that_pip_refuses_is_named(
    monkeypatch, capsys, tmp_path
):
    versions = {(3, 11, 2): tmp_path, (3, 12, 7): tmp_path, (3, 13, 0): tmp_path}
    words = {(3, 11, 2): "passed, 3 s", (3, 12, 7): "FAILED, 4 s"}
    monkeypatch.setattr(pythons, "pythons", lambda: versions)
    monkeypatch.setattr(pythons, "set_up", lambda version, python: version in words)
    monkeypatch.setattr(pythons, "smoke", lambda version: {"meter": words[version]})
    monkeypatch.setattr(sys, "argv", ["pythons.py"])
    assert pythons.main() == 1
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["3.11.2", "3.12.7", "3.13.0"]
    assert "FAILED" in lines[1]
    assert "not tried" in lines[2]
    monkeypatch.setattr(sys, "argv", ["pythons.py", "--ends"])
    assert pythons.main() == 0
    assert "3.12.7" not in capsys.readouterr().out
