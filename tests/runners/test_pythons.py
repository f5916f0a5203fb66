"""Which Pythons `make pythons` finds, and what it says of each."""

from pathlib import Path

import pytest

from requirements import pythons


@pytest.mark.parametrize(("own", "tried"), [("3.90", "3.92"), ("3.91", "3.92"), ("3.93", "3.91")])
def test_the_ends_are_tried_but_not_that_of_the_tests(monkeypatch, tmp_path, own, tried):
    for name in ("a/python3.9", "a/python3.10", "a/python3.91", "b/python3.91", "b/python3.92"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(pythons, "OWN", own)
    monkeypatch.setenv("PATH", f"{tmp_path}/a:{tmp_path}/b")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("PYENV_ROOT", "UV_PYTHON_INSTALL_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert pythons.pythons() == {tried: tmp_path / "b" / f"python{tried}"}


def test_pyenv_and_uv_are_asked_where_they_were_put_and_pypy_is_none(monkeypatch, tmp_path):
    kept = ("py/versions/3.91.2/bin/python3.91", "uv/cpython-3.93.0-linux/bin/python3.93")
    for name in (*kept, "py/versions/pypy3.94-7/bin/python3.94", "uv/pypy-3.95/bin/python3.95"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(pythons, "OWN", "3.92")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "py"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    assert list(pythons.pythons().values()) == [tmp_path / name for name in kept]


def test_a_failed_smoke_fails_and_one_that_pip_refuses_is_named(monkeypatch, capsys, tmp_path):
    versions = {f"3.{minor}": tmp_path / str(minor) for minor in (91, 93)}
    monkeypatch.setattr(pythons, "pythons", lambda: versions)
    monkeypatch.setattr(pythons, "set_up", lambda python, folder: python.name != "93")
    monkeypatch.setattr(pythons, "SMOKE", {"meter": []})
    monkeypatch.setattr(pythons, "smoke", lambda python, name: False)
    assert pythons.main() == 1
    said = capsys.readouterr().out
    assert "3.91: meter FAILED" in said
    assert "3.93: not tried" in said
    del versions["3.93"]
    monkeypatch.setattr(pythons, "smoke", lambda python, name: True)
    assert pythons.main() == 0
    assert "3.91: meter passed" in capsys.readouterr().out
