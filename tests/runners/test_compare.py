"""Two machines' traces side by side: what must be equal, what has a spread, what cannot be told."""

import json
import shutil
from pathlib import Path

import pytest

from proofbook.runners.__main__ import main
from proofbook.runners.commands.compare import compare
from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.measured import SampledSeconds
from proofbook.runners.core.trace.records import NEEDS_FULL
from proofbook.runners.traces.files import read, trace_paths
from tests.recorded import as_recorded, write

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
    write(path, document)


def _compared(other):
    return compare(*({one.stem: read(one) for one in trace_paths(at)} for at in (FROZEN, other)))


def _slower(factor, num_samples=None):
    """A change of a run whose steps take so many times longer."""

    def change(run):
        step = run["timing"]["step"]
        seconds = [s * factor for s in step["samples"]][:num_samples]
        step.update(SampledSeconds.of(seconds).model_dump())

    return change


def test_times_differ_only_where_their_quartile_ranges_lie_apart(other):
    _change(other, "tiny_training", "averaged", _slower(10))
    _change(other, "tiny_training", "single", _slower(1.0001))
    found = _compared(other)
    (line,) = found.times
    assert line.startswith("tiny_training.averaged, step: ")
    assert found.num_equal == _compared(FROZEN).num_equal - 1
    assert found.unequal == []
    _change(other, "tiny_training", "averaged", _slower(1, num_samples=4))  # too few to compare
    assert _compared(other).times == []


def _twice_as_large(run):
    run["ranks"][0]["memory"]["peak_bytes"] *= 2


def test_bytes_and_losses_that_differ_are_listed_with_both_values(other):
    def worse(run):
        for epoch in run["epochs"]:
            epoch["loss"] *= 1.25

    _change(other, "tiny_memory", "whole", _twice_as_large)
    _change(other, "tiny_training", "averaged", worse)
    head, *lines = _compared(other).lines()
    assert head == "should be equal, and is not:"
    peak = next(line for line in lines if "tiny_memory.whole.ranks[].memory.peak_bytes: " in line)
    assert peak.count("bytes |") == 1
    loss = next(line for line in lines if "tiny_training.averaged.epochs[].loss: " in line)
    assert loss.endswith(" more")


def test_what_rounding_decides_is_named_and_not_compared(other):
    def rounded(run):
        run["spread"] = {"epochs.loss": 0.02}
        run["epochs"][0]["loss"] *= 2
        run["ranks"][0]["parameter_digest"] = "0" * 12

    _change(other, "tiny_training", "averaged", rounded)
    found = _compared(other)
    assert found.is_none
    assert {line.partition(": ")[0] for line in found.rounded} == {
        "digests", "tiny_training.averaged.epochs.loss"
    }  # fmt: skip


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
    write(path, document)
    assert "tiny_training: measured by other code" in _compared(other).left_out


def test_runs_left_to_full_are_one_line_and_those_that_a_machine_cannot_do_one_each(other):
    def skipped(reason):
        return lambda run: run.update(status="skipped", reason=reason)

    for name in "averaged", "single":
        _change(other, "tiny_training", name, skipped(NEEDS_FULL.format("tiny_training")))
    _change(other, "tiny_memory", "whole", skipped("no memory limit"))
    lines = [line.strip() for line in _compared(other).lines()]
    assert [line for line in lines if line.endswith("on the second")] == [
        "tiny_memory.whole: skipped on the second",
        "tiny_training: heavier runs left out on the second",
    ]


def test_the_command_lists_what_differs_and_ends_with_one_where_anything_does(
    other, monkeypatch, capsys
):
    shutil.copytree(FROZEN, other.parent / "first")
    monkeypatch.setattr(machine, "TRACES", other.parent)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)  # `make pages` has no torch
    assert main(["compare", "first", "other"]) == 0

    _change(other, "tiny_memory", "whole", _twice_as_large)
    assert main(["compare", "first", "other"]) == 1

    assert "tiny_memory.whole.ranks[].memory.peak_bytes: " in capsys.readouterr().out
    assert main(["compare", "first", "nowhere"]) == 2
