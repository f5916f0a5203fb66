"""Two machines' traces side by side: what must be equal, what has a spread, what cannot be told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from runners.__main__ import main
from runners.traces import machine
from runners.traces.compare import compare, traces_in
from runners.traces.measured import SampledSeconds
from tests.recorded import as_recorded

FROZEN = Path(__file__).parents[1] / "book" / "content" / "traces" / "reference-frozen"


@pytest.fixture
def other(tmp_path):
    """A copy of the frozen machine under another name."""
    folder = tmp_path / "other"
    shutil.copytree(FROZEN, folder)
    return folder


def _change(folder, experiment, run, change):
    path = folder / f"{experiment}.json"
    document = json.loads(path.read_text())
    change(document["runs"][run])
    as_recorded(document["runs"][run])
    path.write_text(json.dumps(document))


def _compared(other):
    return compare(traces_in(FROZEN), traces_in(other))


def test_a_copy_differs_in_nothing(other):
    found = _compared(other)
    assert found.is_none
    assert len(found.lines()) == 1
    assert found.num_equal > 0
    assert found.num_overlapping > 0


def test_times_differ_only_where_their_quartile_ranges_lie_apart(other):
    def slower(run):
        step = run["timing"]["step"]
        step.update(SampledSeconds.of([s * 10 for s in step["samples"]]).model_dump())

    def hardly(run):
        step = run["timing"]["step"]
        step.update(SampledSeconds.of([s * 1.0001 for s in step["samples"]]).model_dump())

    _change(other, "tiny_training", "averaged", slower)
    _change(other, "tiny_training", "single", hardly)
    found = _compared(other)
    (line,) = found.times
    assert line.startswith("tiny_training.averaged.timing.step")
    assert line.endswith("(10.00 times)")
    assert found.num_overlapping == _compared(FROZEN).num_overlapping - 1
    assert found.unequal == []


def test_bytes_and_losses_that_differ_are_listed_with_how_far_apart_they_are(other):
    def more(run):
        run["ranks"][0]["memory"]["peak_bytes"] *= 2

    def worse(run):
        for epoch in run["epochs"]:
            epoch["loss"] *= 1.25

    _change(other, "tiny_memory", "whole", more)
    _change(other, "tiny_training", "averaged", worse)
    found = _compared(other)
    lines = found.lines()
    peak = lines.index("  tiny_memory.whole.ranks[].memory.peak_bytes: at most 0.5 of the larger")
    (loss,) = (n for n, line in enumerate(lines) if "tiny_training.averaged.epochs[].loss" in line)
    assert "at most 0.2 of the larger" in lines[loss]
    assert lines.index("should be equal, and is not:") < peak < loss  # the largest comes first


def test_what_the_kernel_counts_and_what_is_rounded_is_not_called_unequal(other):
    def elsewhere(run):
        for rank in run["ranks"]:
            rank["parameter_digest"] = "0" * 12
            rank["measures"] = {"headers_bytes": 700}
        for epoch in run["epochs"]:
            epoch["loss"] *= 1 + 1e-10

    def at_first(run):
        run["ranks"][0]["measures"] = run["ranks"][1]["measures"] = {"headers_bytes": 1000}

    first = other.with_name("first")
    shutil.copytree(other, first)
    _change(first, "tiny_training", "averaged", at_first)
    _change(other, "tiny_training", "averaged", elsewhere)
    found = compare(traces_in(first), traces_in(other))
    assert found.is_none
    assert len(found.lines()) == 1


def test_a_run_that_ended_otherwise_is_told_and_its_fields_are_not(other):
    def survived(run):
        run["status"] = "completed"
        run["step_losses"] = [1.0]

    _change(other, "tiny_memory", "whole_budget", survived)
    found = _compared(other)
    assert found.outcomes == ["tiny_memory.whole_budget: out_of_memory | completed"]
    assert found.unequal == []


def test_what_was_not_measured_or_with_other_settings_or_code_is_left_out_and_said(other):
    (other / "tiny_memory.json").unlink()

    def wider(run):
        run["settings"]["batch_size"] = 999

    _change(other, "tiny_training", "averaged", wider)
    found = _compared(other)
    assert found.left_out == [
        "tiny_memory: not measured on the second",
        "tiny_training.averaged: has other settings there",
    ]
    path = other / "tiny_training.json"
    document = json.loads(path.read_text())
    document["code"]["digest"] = "another"
    path.write_text(json.dumps(document))
    assert "tiny_training: measured by other code" in _compared(other).left_out


def test_the_command_lists_what_differs_and_ends_with_one_where_anything_does(
    other, monkeypatch, capsys
):
    shutil.copytree(FROZEN, other.parent / "first")
    monkeypatch.setattr(machine, "TRACES", other.parent)
    assert main(["compare", "first", "other"]) == 0

    def larger(run):
        run["ranks"][0]["memory"]["peak_bytes"] += 512

    _change(other, "tiny_memory", "whole", larger)
    assert main(["compare", "first", "other"]) == 1

    assert "tiny_memory.whole.ranks[].memory.peak_bytes: " in capsys.readouterr().out
    assert main(["compare", "first", "nowhere"]) == 2
