"""Accumulation against closed forms of what travels and is held, and the whole batch's gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from runners.experiments.accumulation import RUNS, UNEQUAL
from runners.experiments.accumulation.unequal import Part, gradient_of, joined
from runners.traces.measured import Memory
from runners.traces.records import Run
from runners.traces.schema import Setting

Measure = Callable[[str, str], Run]
LAYER_BYTES = 4 * (256 * 256 + 256)
MODEL_BYTES = 4 * LAYER_BYTES
ACTIVATION_BYTES = 4 * 512 * 256


def memory_of(run: Run) -> Memory:
    """What rank 0 needed."""
    memory = run.ranks[0].memory
    assert memory is not None
    return memory


def number(run: Run, name: str) -> float:
    """A measure of rank 0."""
    value = run.ranks[0].measures[name]
    assert isinstance(value, float)
    return value


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("name", "reductions"),
    [("whole", 1), ("accumulated", 1), ("reduced_each", 4), ("accumulated_8", 1)],
)
def test_gradients_travel_once_an_update_unless_each_part_is_reduced(
    run: Measure, name: str, reductions: int
) -> None:
    for rank in run("accumulation", name).ranks:
        (reduced,) = rank.collectives
        assert (reduced.operation, reduced.bytes) == ("all_reduce", reductions * MODEL_BYTES)


@pytest.mark.ranks
def test_parts_hold_their_share_of_activations_beside_all_gradients(run: Measure) -> None:
    whole, parts = (memory_of(run("accumulation", n)).at_peak for n in ("whole", "accumulated"))
    assert whole is not None
    assert parts is not None
    assert whole.activations_bytes == pytest.approx(6 * ACTIVATION_BYTES, abs=64)
    assert whole.gradients_bytes == 0
    share = 5 * ACTIVATION_BYTES // 4 + LAYER_BYTES
    assert parts.activations_bytes == pytest.approx(share, abs=64)
    assert parts.gradients_bytes == MODEL_BYTES


@pytest.mark.ranks
def test_fsdp_gathers_for_every_part_and_holds_whole_gradients_meanwhile(run: Measure) -> None:
    silent, loud = (run("accumulation", name) for name in ("sharded", "sharded_reduced_each"))
    for shown, scattered in ((silent, 1), (loud, 4)):
        travelled = {c.operation: c.bytes for c in shown.ranks[0].collectives}
        assert travelled == {
            "all_gather": 2 * 4 * MODEL_BYTES,
            "reduce_scatter": scattered * MODEL_BYTES,
        }
    more = (memory_of(silent).peak_bytes or 0) - (memory_of(loud).peak_bytes or 0)
    assert MODEL_BYTES // 4 < more < MODEL_BYTES


@pytest.mark.ranks
def test_equal_parts_train_as_the_whole_batch_does(run: Measure) -> None:
    whole, *others = (
        run("accumulation", name).epochs[-1].loss
        for name in ("whole", "accumulated", "reduced_each")
    )
    assert others == [pytest.approx(whole, rel=1e-5)] * 2


@pytest.mark.ranks
@pytest.mark.parametrize("name", ["samples", "tokens"])
def test_unequal_parts_want_weights(run: Measure, name: str) -> None:
    shown = run("accumulation", name)
    assert number(shown, "weighted_difference") < 1e-12
    assert number(shown, "unweighted_difference") > 0.01
    predicted = number(shown, "predicted_difference")
    assert number(shown, "unweighted_difference") == pytest.approx(predicted, rel=1e-9)
    parts = [4 * length for length in RUNS["tokens"].settings.parts]
    counts = list(UNEQUAL) if name == "samples" else parts
    assert shown.ranks[0].measures["num_counted"] == counts


@pytest.mark.ranks
def test_batch_norm_sees_another_batch_in_each_part(run: Measure) -> None:
    assert number(run("accumulation", "batch_norm"), "weighted_difference") > 0.01
    assert number(run("accumulation", "samples_equal"), "weighted_difference") < 1e-12


def test_the_weighted_sum_of_parts_is_the_gradient_of_a_sum_of_losses() -> None:
    source = torch.Generator().manual_seed(3)
    model = nn.Linear(3, 4).double()
    parts = [
        Part(
            torch.randn(size, 3, generator=source, dtype=torch.float64),
            torch.randint(0, 4, (size,), generator=source),
            size,
        )
        for size in (1, 5, 2)
    ]
    found = gradient_of(model, [(part, part.count / 8) for part in parts])
    whole = joined(parts)
    summed = nn.functional.cross_entropy(model(whole.inputs), whole.targets, reduction="sum")
    wanted = torch.autograd.grad(summed / 8, list(model.parameters()))
    torch.testing.assert_close(found, torch.cat([g.reshape(-1) for g in wanted]))


@pytest.mark.parametrize(
    ("run_name", "changed", "said"),
    [
        ("accumulated", {"num_microbatches": 3}, "cannot be taken in 3 microbatches"),
        ("samples", {"task": "words"}, "task must be samples or tokens"),
        ("samples", {"parts": [1, 2, 3]}, "as many for each of 2 ranks"),
        ("batch_norm", {"parts": [1, 2]}, "at least 2"),
        ("tokens", {"norm": "batch"}, "norm must be none"),
    ],
)
def test_what_cannot_be_dealt_out_is_refused(
    run_name: str, changed: dict[str, Setting], said: str
) -> None:
    plan = RUNS[run_name]
    with pytest.raises(ValueError, match=said):
        replace(plan, settings=plan.settings.changed(changed))
