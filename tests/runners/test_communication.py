"""Collectives' operations and the fit, against numpy's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from runners.experiments.communication import RUNS
from runners.experiments.communication.alpha_beta import fit
from runners.traces.records import Run

MEBIBYTE = 1 << 20


def test_a_fit_finds_the_line_that_made_the_times() -> None:
    sizes = [1000, 10_000, 1_000_000]
    found = fit(sizes, [2e-4 + 3e-9 * size for size in sizes])
    assert found.alpha == pytest.approx(2e-4)
    assert found.beta == pytest.approx(3e-9)
    assert found.seconds(5000) == pytest.approx(2e-4 + 1.5e-5)


def test_a_fit_is_numpy_s_with_relative_errors() -> None:
    sizes = np.array([3e3, 5e4, 8e5, 3e6])
    seconds = np.array([5.1e-4, 4.4e-4, 1.3e-3, 3.1e-3])
    slope, start = np.polyfit(sizes, seconds, 1, w=1 / seconds)
    found = fit(list(sizes), list(seconds))
    assert found.alpha == pytest.approx(start)
    assert found.beta == pytest.approx(slope)


def test_one_size_makes_no_line() -> None:
    with pytest.raises(ValueError, match="two sizes"):
        fit([8, 8], [1.0, 2.0])


@pytest.mark.parametrize("sizes", [[3072], [3072, 3073], 3072])
def test_sizes_that_cannot_be_dealt_out_are_refused(sizes: list[int]) -> None:
    plan = RUNS["ranks_3"]
    with pytest.raises(ValueError, match="size"):
        replace(plan, settings=plan.settings.changed({"sizes_bytes": sizes}))


def sent(run: Run, operation: str) -> list[int]:
    """Payload bytes that each rank sent for one call over three mebibytes."""
    found = [r.measures[f"{operation}_{3 * MEBIBYTE}_sent_bytes"] for r in run.ranks]
    return [n for n in found if isinstance(n, int)]
