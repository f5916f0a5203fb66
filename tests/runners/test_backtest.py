"""The score of what would be forecast now, on the committed machines."""

from __future__ import annotations

import json
import shutil

import pytest

from runners.forecast.backtest import backtests
from runners.traces.machine import ROOT

TRACES = ROOT / "content" / "traces"


@pytest.fixture(scope="module")
def scores() -> list[dict[str, object]]:
    """Every committed machine's score, the reference machine first."""
    (text,) = backtests(TRACES, as_json=True)
    found: list[dict[str, object]] = json.loads(text)
    return found


def test_the_reference_machine_is_scored_and_one_that_nothing_was_fitted_on(scores):
    assert scores[0]["machine"].startswith("reference-")
    assert len(scores) > 1


def test_peaks_of_simulations_are_those_of_real_ranks_on_every_machine(scores):
    for one in scores:
        assert one["num_near"] >= 0.98 * one["num_peaks"] > 0, one["machine"]


def test_a_machine_without_primitives_is_not_scored(tmp_path):
    (tmp_path / "bare").mkdir()
    (tmp_path / "reference-x").mkdir()
    for name in ("prediction", "machine", "sharding", "growth"):
        path = next(TRACES.glob(f"reference-*/{name}.json"))
        shutil.copy(path, tmp_path / "reference-x")
    said = backtests(tmp_path)
    assert said[0].startswith("reference-x: ")
    assert not any("bare" in line for line in said)
