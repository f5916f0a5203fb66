"""What another machine changes: observations may differ, laws may not, and both are told."""

from __future__ import annotations

import json

import pytest

from generator.evidence.comparison import compared
from runners.traces.measured import SampledSeconds


@pytest.fixture
def other(copy):
    """A second machine whose averaged step is faster than its single one; the rest is the same."""
    copy.add_machine("another", "tiny_training", "tiny_memory")
    samples = SampledSeconds.of([0.00010, 0.00011, 0.00012, 0.00013, 0.00014]).model_dump()
    timing = _run_of(copy, "tiny_training", "averaged")["timing"]
    copy.change_run("tiny_training.averaged", "another", timing={**timing, "step": samples})
    return copy


def _run_of(copy, experiment, run):
    return json.loads(copy.trace(experiment, "another").read_text())["runs"][run]


def test_other_times_change_an_observation_and_no_law(other):
    lines, breaks_law = compared(other.load("reference-frozen"), "another")
    assert lines[0] == "observations that changed theirs:"
    assert lines[1].strip().startswith("averaging-is-slower: holds | does not hold")
    assert not breaks_law


def test_a_law_that_breaks_on_the_other_machine_is_told_apart(other):
    ranks = _run_of(other, "tiny_memory", "whole")["ranks"]
    ranks[0]["memory"]["peak_bytes"] *= 3
    other.change_run("tiny_memory.whole", "another", ranks=ranks)
    lines, breaks_law = compared(other.load("reference-frozen"), "another")
    assert [line.strip().partition(":")[0] for line in lines] == [
        "laws that changed their verdict", "whole-peak",
        "observations that changed theirs", "averaging-is-slower",
        "stayed",
    ]  # fmt: skip
    assert breaks_law


def test_claims_whose_runs_the_other_machine_lacks_stay_open(copy):
    copy.add_machine("another", "tiny_memory")
    (line,), _ = compared(copy.load("reference-frozen"), "another")
    assert not line.partition("; ")[2].startswith("0 ")
