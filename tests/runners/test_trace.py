"""Traces on disk: whole or not at all.

`tests/generator/test_book.py` has traces that are wrong. A strict build, which the tests of the
site begin with, refuses those of the book that are stale, are lacking, or ended as none declared.
"""

import errno
import json
import os

import pytest

from proofbook.runners.system.files import write_json
from proofbook.runners.traces.files import TraceError, read, trace_paths, write
from tests.sampled import REFERENCE


def test_a_trace_has_a_digest_and_survives_writing_and_reading(tmp_path):
    for committed in trace_paths(REFERENCE):
        path, trace = tmp_path / committed.name, read(committed)
        write(path, trace)
        written, again = path.read_bytes(), read(path)
        assert again == trace
        assert trace.values
        write(path, again)
        assert path.read_bytes() == written


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("reference-cpu-2c/ddp", "run ddp --as-reference --full"),
        ("cpu-1c-ea2ab3/machine", "run ddp --force"),
        ("plans/llama-8b", "plan check llama-8b --write"),
        ("planner/plan_steps", "plan check plan_steps --write"),
    ],
)
def test_a_file_that_is_missing_or_cut_says_how_to_bring_it_back(tmp_path, file, command):
    path = tmp_path / f"{file}.json"
    path.parent.mkdir()
    for said in ("no such file", "not a whole JSON file"):
        with pytest.raises(TraceError, match=said) as refused:
            read(path)
        advice = f"restore it from git, or make it again with `python -m runners {command}`"
        assert str(refused.value).endswith(advice)
        path.write_text('{"runs": {')


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
