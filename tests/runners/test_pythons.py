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
    installed = {"a": (3, 9, 1), "b": (3, 92, 1), "c": (3, 92, 7), "d": None, "e": (3, 91, 2)}
    installed["own"] = sys.version_info[:3]
    monkeypatch.setattr(pythons, "candidates", lambda: [tmp_path / name for name in installed])
    monkeypatch.setattr(pythons, "version_of", lambda path: installed[path.name])
    assert pythons.pythons() == {(3, 91, 2): tmp_path / "e", (3, 92, 7): tmp_path / "c"}


def test_a_smoke_that_fails_fails_the_command_and_one_that_pip_refuses_is_named(
    monkeypatch, capsys, tmp_path
):
    versions = {(3, minor, 0): tmp_path / str(minor) for minor in (91, 92, 93)}
    monkeypatch.setattr(pythons, "pythons", lambda: versions)
    monkeypatch.setattr(pythons, "set_up", lambda python, folder: python.name != "93")
    monkeypatch.setattr(pythons, "SMOKE", {"meter": []})
    monkeypatch.setattr(pythons, "smoke", lambda python, name: "3.92" not in str(python))
    monkeypatch.setattr(sys, "argv", ["pythons.py"])
    assert pythons.main() == 1
    said = capsys.readouterr().out
    assert "3.91.0: meter passed" in said
    assert "3.92.0: meter FAILED" in said
    assert "3.93.0: not tried" in said
    monkeypatch.setattr(sys, "argv", ["pythons.py", "--ends"])
    assert pythons.main() == 0
    assert "3.92.0" not in capsys.readouterr().out
