"""Steps over links of a set rate, against closed forms and against the links' own limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from runners.experiments.shaped_link import RUNS
from runners.plans.experiment import find
from runners.system import links
from runners.traces.files import read
from runners.traces.records import Run

Measure = Callable[[str, str], Run]
can_link = pytest.mark.skipif(links.cannot_link() is not None, reason=str(links.cannot_link()))
GRADIENT_BYTES = 4 * 4 * (256 * 256 + 256)  # four layers; two ranks send each other all of it


@pytest.fixture(scope="session")
def committed(root: Path) -> dict[str, Run]:
    """The reference machine's runs."""
    (path,) = (root / "content" / "traces").glob("reference-*/shaped_link.json")
    return {n: r for n, r in read(path).runs.items() if r.status != "skipped"}


def sent(run: Run, rank: int, name: str = "sent_bytes") -> float:
    value = run.ranks[rank].measures[name]
    assert isinstance(value, float)
    return value


def seconds_for(num_bytes: float) -> float:
    """What they take at 400 Mb/s, less what buckets let pass at once."""
    return (num_bytes - 4 * 25_000) * 8 / 400e6


def test_what_a_link_lets_through_follows_from_the_setting() -> None:
    for plan in find("shaped_link").runs.values():
        assert plan.link_bits_per_second == plan.settings.link_bits_per_second
        assert plan.own_network
    slow = RUNS["mbit_100"].settings
    assert slow.transfer_seconds == pytest.approx(GRADIENT_BYTES * 8 / 100e6)
    each = RUNS["reduced_each"].settings
    assert each.transfer_seconds == pytest.approx(4 * GRADIENT_BYTES * 8 / 400e6)


@pytest.mark.parametrize(
    ("changed", "world_size", "words"),
    [
        ({"num_steps": 3}, 2, "num_steps"),
        ({"num_reductions": 3}, 2, "num_reductions"),
        ({"link_bits_per_second": 0}, 2, "link_bits_per_second"),
        ({}, 1, "world_size"),
    ],
)
def test_impossible_settings_are_refused(
    changed: dict[str, int], world_size: int, words: str
) -> None:
    plan = RUNS["reduced_each"]
    with pytest.raises(ValueError, match=words):
        replace(plan, world_size=world_size, settings=plan.settings.changed(changed))


@can_link
@pytest.mark.ranks
@pytest.mark.parametrize(("name", "num_reductions"), [("accumulated", 1), ("reduced_each", 4)])
def test_each_exchange_sends_the_gradients_once(
    run: Measure, name: str, num_reductions: int
) -> None:
    one = run("shaped_link", name)
    for rank in (0, 1):
        assert sent(one, rank) == pytest.approx(num_reductions * GRADIENT_BYTES, rel=0.01)


@can_link
@pytest.mark.ranks
def test_fewer_exchanges_and_other_ways_lead_to_the_same_parameters(run: Measure) -> None:
    accumulated, each = run("shaped_link", "accumulated"), run("shaped_link", "reduced_each")
    assert accumulated.epochs[0].loss == pytest.approx(each.epochs[0].loss, rel=1e-6)
    for one in (accumulated, each):
        assert len({r.parameter_digest for r in one.ranks}) == 1


def test_an_exchange_lasts_as_long_as_its_bytes_need(committed: dict[str, Run]) -> None:
    times = committed["after_backward"].timing.measures["all_reduce"]
    assert times.median_seconds >= seconds_for(GRADIENT_BYTES)


@can_link
@pytest.mark.ranks
def test_no_exchange_is_shorter_than_half_its_bytes_need(run: Measure) -> None:
    """A late rank finds the other's half here already; the sum of its own half is yet to come."""
    times = run("shaped_link", "after_backward").timing.measures["all_reduce"]
    assert min(times.samples) >= seconds_for(GRADIENT_BYTES / 2)


def test_bytes_depend_on_neither_rate_nor_buckets(committed: dict[str, Run]) -> None:
    for name, one in committed.items():
        expected = GRADIENT_BYTES * (4 if name == "reduced_each" else 1)
        for rank in (0, 1):
            assert sent(one, rank) == pytest.approx(expected, rel=0.01)


def test_the_same_rows_teach_the_same_over_every_link(committed: dict[str, Run]) -> None:
    whole = [one for one in committed.values() if one.settings["num_microbatches"] == 1]
    losses = {one.epochs[0].loss for one in whole}
    assert max(losses) == pytest.approx(min(losses), rel=1e-6)
