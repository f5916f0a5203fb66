"""Traces on disk: whole or not at all. `tests/generator/test_book.py` has traces that are wrong."""

import errno
import json
import os
from pathlib import Path

import pytest

from runners.traces.files import NOT_TRACES, TraceError, read, write, write_json

REFERENCES = sorted(Path("content/traces").glob("reference-*/*.json"))
TRACES = [p for p in REFERENCES if p.stem not in NOT_TRACES]


def test_a_trace_has_a_digest_and_survives_writing_and_reading(root, tmp_path):
    for path in TRACES:
        whole = read(root / path)
        write(tmp_path / path.name, whole)
        again = read(tmp_path / path.name)
        assert again == whole
        assert whole.values
        write(tmp_path / "again.json", again)
        assert (tmp_path / "again.json").read_bytes() == (tmp_path / path.name).read_bytes()


def test_a_missing_trace_says_how_to_measure_it(tmp_path):
    with pytest.raises(TraceError, match=r"ddp\.json: no such trace; measure it with"):
        read(tmp_path / "ddp.json")


def test_a_full_disk_leaves_the_old_trace_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "machine.json"
    write_json(path, {"before": 1})

    def refuse(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"after": 2})
    assert json.loads(path.read_text()) == {"before": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_number_that_is_not_finite_is_never_written(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"loss": float("nan")})
    assert not list(tmp_path.iterdir())
