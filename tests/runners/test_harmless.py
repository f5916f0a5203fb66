"""`python -m runners harmless`: traces of former code stay fresh once a rerun came out equal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runners.__main__ import main
from runners.plans.experiment import MORE
from runners.traces import digest, machine
from runners.traces.files import is_stale, read
from tests.runners.conftest import OWN_EXPERIMENTS

FORMER = "0123456789abcdef"


class Desk:
    """A folder of traces with one experiment, measured here, and a `harmless.yml` of its own."""

    def __init__(self, tmp_path: Path) -> None:
        self.file = tmp_path / "harmless.yml"
        self.file.write_text("# Changes.\n[]\n")

    @property
    def trace(self) -> Path:
        (path,) = machine.TRACES.glob("*/heavier.json")
        return path

    def change(self, **values: object) -> None:
        """Let the trace be of former code, and its run hold these values."""
        document = json.loads(self.trace.read_text())
        document["code"]["digest"] = FORMER
        document["runs"]["light"].update(values)
        self.trace.write_text(json.dumps(document))

    def is_stale(self) -> bool:
        digest.forget_code()
        return is_stale(read(self.trace))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A desk at which `heavier.light` is measured."""
    monkeypatch.setattr(machine, "TRACES", tmp_path / "traces")
    monkeypatch.setattr(machine, "LOCAL_ID", tmp_path / ".machine.json")
    monkeypatch.setenv(MORE, str(OWN_EXPERIMENTS))
    one = Desk(tmp_path)
    monkeypatch.setattr(digest, "HARMLESS", one.file)
    machine.describe.cache_clear()
    digest.forget_code()
    assert main(["run", "heavier"]) == 0
    yield one
    machine.describe.cache_clear()
    digest.forget_code()


@pytest.mark.ranks
def test_a_change_that_altered_nothing_is_declared_and_the_trace_stays_fresh(desk, capsys) -> None:
    desk.change()
    assert desk.is_stale()
    assert main(["harmless", "heavier", "--because", "A name was changed."]) == 0
    assert "outcomes and fields are equal\ndeclared" in capsys.readouterr().out
    assert not desk.is_stale()
    assert desk.file.read_text().startswith("# Changes.\n- reason: A name was changed.\n")
    (entry,) = digest.harmless()
    assert entry.reruns[0].num_equal > 5
    assert entry.digests["heavier"].was == FORMER


@pytest.mark.ranks
def test_a_second_change_follows_upon_the_first(desk, monkeypatch) -> None:
    desk.change()
    assert main(["harmless", "heavier", "--because", "A name was changed."]) == 0
    monkeypatch.setattr(digest, "MEASURING", ("runners/meters/kernel.py",))
    assert desk.is_stale()
    assert main(["harmless", "heavier", "--because", "Another name was changed."]) == 0
    assert not desk.is_stale()
    assert len(digest.harmless()) == 2


@pytest.mark.ranks
def test_a_change_that_altered_a_result_is_refused(desk, capsys) -> None:
    document = json.loads(desk.trace.read_text())
    ranks = document["runs"]["light"]["ranks"]
    ranks[0]["measures"]["num_counted"] = 9
    desk.change(ranks=ranks)
    before = desk.file.read_text()
    assert main(["harmless", "heavier", "--because", "A name was changed."]) == 1
    assert "heavier.light.ranks[].measures.num_counted" in capsys.readouterr().out
    assert desk.is_stale()
    assert desk.file.read_text() == before


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("chosen", "line"),
    [
        ("heavier", "no trace is stale, so there is no change to declare"),
        ("ddp", "ddp is not measured on this machine"),
        ("heavie", "no experiment 'heavie'"),
    ],
)
def test_what_cannot_be_declared_is_one_line(desk, capsys, chosen: str, line: str) -> None:
    if chosen != "heavier":
        desk.change()
    digest.forget_code()
    assert main(["harmless", chosen, "--because", "A name was changed."]) == 2
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1
