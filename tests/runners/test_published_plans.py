"""The committed simulations of published measurements, against the rows."""

from statistics import median

import pytest

from runners.planner.answers.published import MOST_ERROR, PEAKS, is_stale, published_bytes_of
from runners.planner.simulated.published_peaks import rows_by_run
from runners.traces.files import read


@pytest.fixture(scope="module")
def committed():
    return read(PEAKS.path)


def test_every_published_peak_is_there_as_published_and_none_is_stale(committed):
    assert not is_stale(committed)
    stated = {
        (name, one.kind, one.bytes)
        for name, row in rows_by_run().items()
        for one in row.measured
        if one.moment == "peak"
    }
    assert stated == {
        (name, *peak) for name, row in committed.runs.items() for peak in published_bytes_of(row)
    }
    for name, row in rows_by_run().items():
        assert row.source.url == committed.runs[name].settings["url"]


def errors(committed, *kinds):
    return {
        (name, kind): row.ranks[0].measures[f"{kind}_bytes"] / measured - 1
        for name, row in committed.runs.items()
        for kind, measured in published_bytes_of(row)
        if kind in kinds
    }


def test_medians_are_as_small_as_the_plan_promises(committed):
    for kinds, most in ((("allocated", "active"), 0.015), (("reserved",), 0.04)):
        assert median(map(abs, errors(committed, *kinds).values())) <= most


def test_each_miss_and_nothing_else_has_an_explanation(committed):
    """A term that a plan can add explains its row to 6 %."""
    missing = {
        key
        for key, error in errors(committed, "allocated", "active", "reserved").items()
        if abs(error) > MOST_ERROR
    }
    explained = {
        (name, kind): (row.ranks[0].measures.get(f"with_term_{kind}_bytes", measured), measured)
        for name, row in committed.runs.items()
        for kind, measured in published_bytes_of(row)
        if f"explained_{kind}" in row.settings
    }
    assert missing == explained.keys()
    assert missing
    for key, (with_term, measured) in explained.items():
        assert with_term == pytest.approx(measured, rel=0.06), key
