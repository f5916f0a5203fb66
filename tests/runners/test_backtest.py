"""The score of what would be forecast now, on the committed machines."""

from __future__ import annotations

import json
import shutil

import pytest

from runners.forecast.backtest import backtests, said
from runners.traces.backtest import Score
from runners.traces.files import read_score
from runners.traces.machine import ROOT

TRACES = ROOT / "content" / "traces"


@pytest.fixture(scope="module")
def scores():
    """Every committed machine's score, the reference machine first."""
    return backtests(TRACES)


def test_the_reference_machine_is_scored_and_one_that_nothing_was_fitted_on(scores):
    assert scores[0].machine.startswith("reference-")
    assert len(scores) > 1


def test_peaks_of_simulations_are_those_of_real_ranks_on_every_machine(scores):
    for one in scores:
        assert one.num_near >= 0.98 * one.num_peaks > 0, one.machine


def test_the_committed_scores_are_todays(scores):
    for one in scores:
        committed = read_score(TRACES / one.machine)
        assert committed is not None, "python -m runners simulate --score --keep"
        today, kept = one.score(committed.scored_at).model_dump(), committed.model_dump()
        assert today.pop("machine") == kept.pop("machine")
        del today["scored_at"], kept["scored_at"]
        nearly = {k: None if v is None else pytest.approx(v, rel=1e-6) for k, v in today.items()}
        assert kept == nearly, one.machine


def test_the_command_prints_every_score_as_json_too(scores):
    (text,) = said(scores, as_json=True)
    printed = json.loads(text)
    assert [one["machine"] for one in printed] == [one.machine for one in scores]
    assert [len(one["steps"]) for one in printed] == [len(one.steps) for one in scores]


def test_an_aim_without_a_bound_is_neither_met_nor_missed():
    score = Score(
        schema_version=1,
        machine="m",
        scored_at="now",
        floor=None,
        num_peaks=4,
        num_near=3,
        num_steps=20,
        num_within=17,
        median_error=0.1,
        median_half_width=0.36,
    )
    met = {"near": False, "median_error": None, "within": True, "half_width": False}
    assert {one.name: one.is_met for one in score.aims()} == met
    with_floor = score.model_copy(update={"floor": 0.07})
    assert {one.name: one.is_met for one in with_floor.aims()} == met | {"median_error": True}


def test_a_machine_without_primitives_is_not_scored(tmp_path):
    (tmp_path / "bare").mkdir()
    (tmp_path / "reference-x").mkdir()
    for name in ("prediction", "machine", "sharding", "growth"):
        path = next(TRACES.glob(f"reference-*/{name}.json"))
        shutil.copy(path, tmp_path / "reference-x")
    lines = list(said(backtests(tmp_path), as_json=False))
    assert lines[0].startswith("reference-x: ")
    assert not any("bare" in line for line in lines)
