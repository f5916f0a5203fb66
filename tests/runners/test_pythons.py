"""Which Pythons `make pythons` finds, and what it says of each."""

import pytest

from requirements import pythons


@pytest.mark.parametrize(("own", "tried"), [("3.90", "3.93"), ("3.91", "3.93"), ("3.94", "3.91")])
def test_the_ends_are_tried_but_not_that_of_the_tests_and_pypy_is_none(
    monkeypatch, tmp_path, own, tried
):
    """On PATH, and where pyenv and uv were told to put what they install."""
    kept = {"3.91": "py/versions/3.91.2/bin/python3.91", "3.93": "uv/cpython-3.93/bin/python3.93"}
    others = ("a/python3.9", "a/python3.10", "a/python3.92", "uv/pypy-3.95/bin/python3.95")
    for name in (*kept.values(), *others, "py/versions/pypy3.94-7/bin/python3.94"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(pythons, "OWN", own)
    for variable, place in (("PATH", "a"), ("PYENV_ROOT", "py"), ("UV_PYTHON_INSTALL_DIR", "uv")):
        monkeypatch.setenv(variable, str(tmp_path / place))
    assert pythons.pythons() == {tried: tmp_path / kept[tried]}


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
    said = capsys.readouterr().out
    assert "3.91: meter passed" in said
    assert "3.91: quick passed" in said
