"""The list of digests beside the traces: an edit, a half-merged file and a lost one are noticed."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest

from runners.measuring import measure
from runners.measuring.pending import part_of, pending
from runners.measuring.progress import Progress
from runners.traces.files import VALUES, write_json
from runners.traces.values import edited, list_values, listed


@pytest.fixture
def frozen(root: Path, tmp_path: Path) -> Path:
    """The frozen machine's folder, whose list is complete."""
    copy = tmp_path / "reference-frozen"
    shutil.copytree(
        root / "tests" / "book" / "content" / "traces" / "reference-frozen",
        copy,
        ignore=shutil.ignore_patterns(VALUES),
    )
    list_values(copy)
    return copy


def _edit(path: Path) -> None:
    path.write_text(path.read_text().replace("0.596", "0.597").replace("0.61", "0.62"))


def test_every_committed_trace_is_as_it_was_measured(root: Path) -> None:
    folders = sorted((root / "content" / "traces").glob("reference-*"))
    assert folders
    for one in folders:
        assert listed(one), "list the digests of the set that was measured"
        assert edited(one) == []


def test_one_edited_number_is_noticed(frozen: Path) -> None:
    _edit(frozen / "tiny_training.json")
    assert edited(frozen) == edited(frozen, "tiny_training") == ["tiny_training"]
    assert edited(frozen, "tiny_memory") == []


def test_half_a_merge_is_noticed(frozen: Path) -> None:
    (frozen / "tiny_memory.json").rename(frozen / "another.json")
    assert edited(frozen) == ["another", "tiny_memory"]


@pytest.mark.ranks
def test_an_edited_trace_is_measured_again(folder, launcher):

    def measured() -> None:
        measure.measure(pending("heavier", folder), launcher, Progress(io.StringIO()))

    measured()
    assert set(listed(folder)) == {"heavier"}
    assert pending("heavier", folder) is None
    path = folder / "heavier.json"
    document = json.loads(path.read_text())
    document["runs"]["light"]["printed"] = ["better"]
    write_json(path, document)
    one = pending("heavier", folder)
    assert (one.reason, one.measured) == ("edited after it was measured", ("light",))
    measured()
    assert pending("heavier", folder) is None


@pytest.mark.ranks
def test_a_stop_between_trace_and_list_costs_no_run(folder, monkeypatch, launcher):

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(measure, "list_values", stopped)
        with pytest.raises(KeyboardInterrupt):
            measure.measure(pending("heavier", folder), launcher, Progress(io.StringIO()))
    assert part_of("heavier", folder).exists()
    one = pending("heavier", folder)
    assert (one.reason, one.measured) == ("unfinished", ())
    measure.measure(one, launcher, Progress(io.StringIO()))
    assert edited(folder) == []
    assert pending("heavier", folder) is None
