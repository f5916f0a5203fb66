"""Collectives against closed forms written out here, and the fit against numpy's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from runners.experiments.communication import OPERATIONS, RUNS, SIZES
from runners.experiments.communication.alpha_beta import fit
from runners.system import links
from runners.traces.files import read
from runners.traces.records import Run

Measure = Callable[[str, str], Run]
can_link = pytest.mark.skipif(links.cannot_link() is not None, reason=str(links.cannot_link()))
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


@pytest.mark.ranks
def test_every_operation_is_timed_at_every_size_and_fitted_in_every_turn(run: Measure) -> None:
    timed = run("communication", "ranks_2")
    taken = timed.timing.measures
    assert timed.status == "completed"
    for operation in OPERATIONS:
        medians = []
        for size in SIZES:
            samples = taken[f"{operation}_{size}"]
            assert samples.num_samples == timed.settings["num_turns"]
            medians.append(samples.median_seconds)
        whole = fit(SIZES, medians)
        left = [m - whole.seconds(size) for size, m in zip(SIZES, medians, strict=True)]
        assert taken[f"{operation}_residual"].samples == pytest.approx(left, rel=1e-3, abs=2e-6)
        first = fit(SIZES, [taken[f"{operation}_{size}"].samples[0] for size in SIZES])
        assert taken[f"{operation}_alpha"].samples[0] == pytest.approx(
            first.alpha, rel=1e-3, abs=2e-6
        )
        beta = taken[f"{operation}_beta_a_mebibyte"].samples[0]
        assert beta == pytest.approx(first.beta * MEBIBYTE, rel=1e-3, abs=2e-6)


def sent(run: Run, operation: str) -> list[int]:
    """Payload bytes that each rank sent for one call over three mebibytes."""
    found = [r.measures[f"{operation}_{3 * MEBIBYTE}_sent_bytes"] for r in run.ranks]
    return [n for n in found if isinstance(n, int)]


@pytest.fixture(scope="session")
def committed(root: Path) -> dict[str, Run]:
    """The reference machine's runs."""
    (path,) = (root / "content" / "traces").glob("reference-*/communication.json")
    return dict(read(path).runs)


@can_link
@pytest.mark.ranks
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_links_carry_what_rings_and_trees_promise(
    run: Measure, committed: dict[str, Run], world_size: int
) -> None:
    whole, others = 3 * MEBIBYTE, world_size - 1
    runs = [committed[f"wire_{world_size}"]]
    if world_size == 3:
        runs.append(run("communication", "wire_3"))
    for one in runs:
        ring = pytest.approx([2 * others / world_size * whole] * world_size, rel=0.01)
        assert sent(one, "all_reduce") == ring
        assert sent(one, "reduce_scatter") == ring  # gloo reduces all, and gives each its share
        share = pytest.approx([others / world_size * whole] * world_size, rel=0.01)
        assert sent(one, "all_gather") == share
        assert sent(one, "all_to_all") == share
        # A tree: every rank but the root receives the payload once, from whoever has it.
        assert sum(sent(one, "broadcast")) == pytest.approx(others * whole, rel=0.01)
        assert sent(one, "broadcast")[0] == pytest.approx(min(others, 2) * whole, rel=0.01)
