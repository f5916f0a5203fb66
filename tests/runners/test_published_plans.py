"""The committed simulations of published measurements, against the rows and against a new one."""

from __future__ import annotations

from statistics import median

import pytest

from runners.planning import published as simulated
from runners.planning.processes import answers
from runners.plans.published import published
from runners.traces import published_plans
from runners.traces.files import read_published

AGAIN = "megatron-small-tp2-sp-cp2-ddp"


@pytest.fixture(scope="module")
def committed():
    return read_published(simulated.PATH)


def test_every_published_peak_is_there_as_published_and_none_is_stale(committed):
    assert committed.code == published_plans.code_digest()
    stated = [
        (row.id, one.kind, row.bytes_of(one.kind), row.source.commit)
        for row in published().rows
        for one in row.measured
        if one.moment == "peak"
    ]
    assert stated == [
        (row.id, peak.kind, peak.measured_bytes, row.commit)
        for row in committed.rows
        for peak in row.peaks
    ]


def errors(committed, *kinds):
    return {
        (row.id, one.kind): one.error
        for row in committed.rows
        for one in row.peaks
        if one.kind in kinds
    }


def test_medians_are_as_small_as_the_plan_promises(committed):
    for kinds, most in ((("allocated", "active"), 0.015), (("reserved",), 0.04)):
        assert median(map(abs, errors(committed, *kinds).values())) <= most


def test_each_miss_and_nothing_else_has_an_explanation(committed):
    missing = {
        key
        for key, error in errors(committed, "allocated", "active", "reserved").items()
        if abs(error) > committed.most_error
    }
    explained = {(r.id, p.kind): p for r in committed.rows for p in r.peaks if p.explained}
    assert missing == explained.keys()
    assert missing
    for key, one in explained.items():
        assert one.with_term_bytes == pytest.approx(one.measured_bytes, rel=0.06), key


def test_a_row_comes_out_the_same_today(committed, tmp_path):
    (row,) = (one for one in published().rows if one.id == AGAIN)
    (again,) = simulated.simulated(answers([simulated.question(row)], 1, tmp_path), [row])
    (kept,) = (one for one in committed.rows if one.id == AGAIN)
    assert again.peaks == kept.peaks
