"""What `make pythons` says of each Python that it is given."""

from requirements import pythons


def test_a_failure_fails_and_a_python_that_cannot_be_set_up_is_named(monkeypatch, capsys):
    monkeypatch.setattr(pythons, "set_up", lambda python, folder: python != "python3.93")
    monkeypatch.setattr(pythons, "SMOKE", {"meter": []})
    monkeypatch.setattr(pythons, "smoke", lambda python, name: "3.92" in str(python))
    assert pythons.main(["python3.91", "python3.93"]) == 1
    said = capsys.readouterr().out
    assert "python3.91: meter FAILED" in said
    assert "python3.93: not tried" in said
    assert pythons.main(["python3.92"]) == 0
    assert "python3.92: meter passed" in capsys.readouterr().out
    monkeypatch.undo()
    assert not pythons.set_up("python3.nowhere", pythons.ROOT)
