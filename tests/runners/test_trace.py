"""Traces on disk: whole or not at all, and refused with file and field where they are wrong."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runners.traces.files import NOT_TRACES, TraceError, read, write, write_json

REFERENCES = sorted(Path("content/traces").glob("reference-*/*.json"))
TRACES = [p for p in REFERENCES if p.stem not in NOT_TRACES]


@pytest.fixture
def document(root: Path) -> dict[str, Any]:
    """A real trace, as plain JSON, to be spoilt."""
    path = next((root / "content" / "traces").glob("reference-*/batch_split.json"))
    whole: dict[str, Any] = json.loads(path.read_text())
    return whole


@pytest.fixture
def spoilt(tmp_path: Path, document: dict[str, Any]) -> Callable[[Callable[[Any], None]], Path]:
    """Change a real trace and write it where `read` finds it."""

    def change(how: Callable[[Any], None]) -> Path:
        how(document)
        path = tmp_path / "batch_split.json"
        path.write_text(json.dumps(document).replace("Infinity", "1e999"))
        return path

    return change


def test_a_trace_survives_writing_and_reading(root: Path, tmp_path: Path) -> None:
    for path in TRACES:
        whole = read(root / path)
        write(tmp_path / path.name, whole)
        again = read(tmp_path / path.name)
        assert again == whole
        write(tmp_path / "again.json", again)
        assert (tmp_path / "again.json").read_bytes() == (tmp_path / path.name).read_bytes()


def test_a_missing_trace_says_how_to_measure_it(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"ddp\.json: no such trace; measure it with"):
        read(tmp_path / "ddp.json")


def test_a_truncated_trace_is_refused_by_name(tmp_path: Path, root: Path) -> None:
    text = (root / TRACES[0]).read_text()
    torn = tmp_path / TRACES[0].name
    torn.write_text(text[: len(text) // 2])
    with pytest.raises(TraceError, match="not a whole JSON file"):
        read(torn)


@pytest.mark.parametrize(
    ("how", "field"),
    [
        (lambda d: d["runs"]["split"].pop("status"), r"runs\.split\.status: field required"),
        (lambda d: d["runs"]["split"].update(colour="red"), r"runs\.split\.colour: extra"),
        (lambda d: d.update(schema_version=3), "schema_version: input should be 2"),
        (
            lambda d: d["runs"]["split"]["timing"].update(wall_seconds=math.inf),
            r"runs\.split\.timing",
        ),
    ],
)
def test_a_malformed_field_is_named(
    spoilt: Callable[..., Path], how: Callable[[Any], None], field: str
) -> None:
    with pytest.raises(TraceError, match=rf"batch_split\.json: {field}"):
        read(spoilt(how))


def test_a_trace_in_the_wrong_file_is_refused(spoilt: Callable[..., Path]) -> None:
    with pytest.raises(TraceError, match="experiment: is 'ddp', the file says 'batch_split'"):
        read(spoilt(lambda d: d.update(experiment="ddp")))


def test_a_full_disk_leaves_the_old_trace_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "machine.json"
    write_json(path, {"before": 1})

    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"after": 2})
    assert json.loads(path.read_text()) == {"before": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_number_that_is_not_finite_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"loss": float("nan")})
    assert not list(tmp_path.iterdir())
