"""Traces on disk: whole or not at all; those of the book are fresh, and ended as declared.

`tests/generator/test_book.py` has traces that are wrong.
"""

import errno
import json
import os

import pytest

from runners.plans.experiment import find, names
from runners.traces.files import NOT_TRACES, TraceError, is_stale, read, write, write_json


@pytest.fixture(scope="module")
def committed(root):
    """The reference machine's traces; one that contradicts itself cannot be read."""
    paths = sorted((root / "content" / "traces").glob("reference-*/*.json"))
    return {p.stem: read(p) for p in paths if p.stem not in NOT_TRACES}


@pytest.mark.ranks
def test_every_experiment_has_a_committed_trace_of_the_code_as_it_stands(committed):
    assert sorted(committed) == names()
    assert [name for name, trace in committed.items() if is_stale(trace)] == []


@pytest.mark.ranks
def test_every_committed_run_ended_as_declared(committed):
    for name, trace in committed.items():
        assert set(trace.runs) == set(find(name).runs)
        assert [n for n, run in trace.runs.items() if run.is_surprise] == []


def test_a_trace_has_a_digest_and_survives_writing_and_reading(committed, tmp_path):
    for name, trace in committed.items():
        path = tmp_path / f"{name}.json"
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
        ("reference-cpu-2c/primitives", "run --as-reference --full"),
        ("cpu-1c-ea2ab3/machine", "run ddp --force"),
        ("plans/llama-8b", "plan llama-8b --grid"),
        ("planner/plan_steps", "plan --published-steps --grid"),
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
