"""Scaling over ranks and links: the same results, the rows of each rank, the bytes of each step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from runners.experiments.scaling import RUNS
from runners.system import links
from runners.traces.files import read
from runners.traces.records import Run

Measure = Callable[[str, str], Run]
can_link = pytest.mark.skipif(links.cannot_link() is not None, reason=str(links.cannot_link()))
GRADIENT_BYTES = 4 * 4 * (320 * 320 + 320)


@pytest.fixture(scope="session")
def committed(root: Path) -> dict[str, Run]:
    """The reference machine's runs."""
    (path,) = (root / "content" / "traces").glob("reference-*/scaling.json")
    return {n: r for n, r in read(path).runs.items() if r.status != "skipped"}


def last_loss(rows: int, num_steps: int, rate: float) -> float:
    """Plain torch, no rank and no recorder: the same network on the same rows."""
    torch.manual_seed(42)
    layers: list[nn.Module] = []
    for index in range(4):
        layers += [nn.ReLU()] * bool(index) + [nn.Linear(320, 320)]
    model = nn.Sequential(*layers)
    source = torch.Generator().manual_seed(42)
    features = torch.randn((rows, 320), generator=source)
    labels = torch.randint(0, 320, (rows,), generator=source)
    loss = torch.zeros(())
    for _ in range(num_steps):
        loss = nn.functional.cross_entropy(model(features), labels)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.sub_(rate * gradient)
    return loss.item()


@pytest.mark.ranks
@pytest.mark.parametrize("name", ["one", "strong_2"])
def test_a_batch_dealt_out_to_ranks_teaches_what_plain_torch_learns(
    run: Measure, name: str
) -> None:
    measured = run("scaling", name)
    expected = last_loss(800, num_steps=8, rate=0.1)
    assert measured.epochs[0].loss == pytest.approx(expected, rel=1e-5)
    assert len({r.parameter_digest for r in measured.ranks}) == 1


def test_every_way_to_share_a_batch_teaches_the_same(committed: dict[str, Run]) -> None:
    for rows in (800, 1600):
        same = [r.epochs[0].loss for r in committed.values() if _rows(r) == rows]
        assert len(same) > 1 or rows == 1600
        assert max(same) == pytest.approx(min(same), rel=1e-5)


def _rows(run: Run) -> int:
    rows = run.settings["global_batch_size"]
    assert isinstance(rows, int)
    return rows


def test_rows_of_a_rank_shrink_under_strong_scaling_and_stay_under_weak(
    committed: dict[str, Run],
) -> None:
    seen = {name: {r.num_samples for r in run.ranks} for name, run in committed.items()}
    steps = RUNS["one"].settings.num_steps
    assert seen["one"] == seen["weak_2"] == seen["weak_4"] == {800 * steps}
    assert seen["strong_2"] == {400 * steps}
    assert seen["strong_4"] == {200 * steps}


def test_only_more_ranks_than_cores_are_marked(committed: dict[str, Run]) -> None:
    marked = {name for name, run in committed.items() if run.timing.oversubscribed}
    assert marked == {name for name, run in committed.items() if run.world_size > 2}


def test_what_is_foreseen_comes_from_smaller_exchanges_than_the_steps_own(
    committed: dict[str, Run],
) -> None:
    for name, run in committed.items():
        assert ("all_reduce" in run.timing.measures) == (run.world_size > 1), name
        assert ("compute" in run.timing.measures) == (run.world_size == 1), name


@can_link
@pytest.mark.ranks
def test_a_step_sends_the_ring_s_share_of_all_gradients(
    run: Measure, committed: dict[str, Run]
) -> None:
    linked = [r for n, r in committed.items() if n.startswith("link_")]
    for one in (run("scaling", "link_fast"), *linked):
        share = 2 * (one.world_size - 1) / one.world_size * GRADIENT_BYTES
        for rank in one.ranks:
            assert rank.measures["sent_bytes"] == pytest.approx(share, rel=0.01)


@pytest.mark.parametrize(
    ("changed", "words"),
    [({"global_batch_size": 801}, "divisible"), ({"num_steps": 3}, "num_steps")],
)
def test_impossible_settings_are_refused(changed: dict[str, int], words: str) -> None:
    plan = RUNS["strong_2"]
    with pytest.raises(ValueError, match=words):
        replace(plan, settings=plan.settings.changed(changed))
