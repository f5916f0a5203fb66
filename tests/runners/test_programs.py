"""The programs that pages show, and recomputation, against oracles of their own."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from runners.experiments.listings import PROGRAMS
from runners.trace import Run

pytestmark = pytest.mark.ranks
Measure = Callable[[str, str], Run]
ACTIVATION_BYTES = 2048 * 256 * 4


def losses(run: Run) -> list[str]:
    """What a program printed after the word loss, line by line."""
    return re.findall(r"loss (?:on the same rows )?([\d.]+)", "\n".join(run.printed))


def test_a_run_s_settings_are_the_program_s_own_constants() -> None:
    settings = PROGRAMS["whole_model_wrong"].settings
    assert {name: settings[name] for name in ("width", "depth", "steps")} == {
        "width": 2048,
        "depth": 8,
        "steps": 4,
    }
    assert PROGRAMS["unsynchronized_wrong"].settings == {}


def test_wrong_and_right_split_programs_train_the_same_model(run: Measure) -> None:
    whole = PROGRAMS["whole_model_wrong"]
    assert whole.settings == PROGRAMS["whole_model_right"].settings
    assert whole.budget_bytes == PROGRAMS["whole_model_right"].budget_bytes
    unlimited, split = (
        run("listings", "whole_model_wrong_unlimited"),
        run("listings", "whole_model_right"),
    )
    layer = 2048 * 2048 + 3 * 2048
    assert [r.num_parameters for r in unlimited.ranks] == [8 * layer]
    assert [r.num_parameters for r in split.ranks] == [4 * layer, 4 * layer]
    assert unlimited.settings["model_bytes"] == 4 * 8 * layer
    assert whole.budget_bytes == 2 * 4 * (8 + 4) * layer // 2
    assert losses(split) == losses(unlimited)
    assert len(losses(split)) == 4


def test_the_whole_model_is_refused_the_gradient_that_no_longer_fits(run: Measure) -> None:
    refused = run("listings", "whole_model_wrong")
    assert refused.status == "out_of_memory"
    assert refused.error is not None
    assert refused.error.asked_bytes == 2048 * 2048 * 4


def test_averaged_gradients_give_what_one_process_computes_on_all_rows(run: Measure) -> None:
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Linear(20, 1)
    teacher, seen = torch.randn(20, 1), torch.randn(200, 20)
    shards = []
    for rank in range(2):
        torch.manual_seed(1 + rank)
        rows = torch.randn(200, 20)
        shards.append((rows, rows @ teacher + torch.randn(200, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for start in range(0, 200, 20):
        batch = slice(start, start + 20)
        rows = torch.cat([r[batch] for r, _ in shards])
        targets = torch.cat([t[batch] for _, t in shards])
        optimizer.zero_grad()
        nn.functional.mse_loss(model(rows), targets).backward()
        optimizer.step()
    expected = nn.functional.mse_loss(model(seen), seen @ teacher).item()
    right = run("listings", "unsynchronized_right")
    assert [float(x) for x in losses(right)] == [pytest.approx(expected, abs=2e-4)] * 2
    assert len({r.parameter_digest for r in right.ranks}) == 1
    assert len(set(losses(run("listings", "unsynchronized_wrong")))) == 2


def test_step_times_of_a_program_are_kept(run: Measure) -> None:
    for name in ("too_many_ranks_wrong", "too_many_ranks_right"):
        samples = run("listings", name).timing.step
        assert samples is not None
        assert samples.num_samples > 100


def test_keeping_everything_costs_an_activation_a_layer(run: Measure) -> None:
    (rank,) = run("recomputation", "kept").ranks
    assert rank.memory is not None
    assert rank.memory.largest is not None
    # fifteen ReLUs, the logits, their log-softmax, and the gradient that starts backward
    assert rank.memory.largest.activations_bytes == pytest.approx(18 * ACTIVATION_BYTES, rel=0.01)


def test_recomputing_keeps_less_and_learns_the_same(run: Measure) -> None:
    kept, recomputed = run("recomputation", "kept"), run("recomputation", "recomputed")
    (before,), (after,) = kept.ranks, recomputed.ranks
    assert after.parameter_digest == before.parameter_digest
    assert recomputed.epochs[-1].loss == kept.epochs[-1].loss
    assert after.memory is not None
    assert after.memory.largest is not None
    assert after.memory.largest.activations_bytes <= 11 * ACTIVATION_BYTES
