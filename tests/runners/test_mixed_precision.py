"""Mixed precision against bytes counted by hand, PyTorch's own Adam, and the formats' limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from runners.experiments.mixed_precision import RUNS
from runners.experiments.mixed_precision.adam import LowAdam
from runners.experiments.mixed_precision.gradients import SMALLEST_HALF
from runners.traces.measured import MemoryClasses
from runners.traces.records import Run
from runners.traces.schema import Setting

Measure = Callable[[str, str], Run]
NUM_PARAMETERS = 8 * (128 * 128 + 128)
SAMPLE_BYTES = 4 * 256 * 128


def largest(run: Run) -> MemoryClasses:
    """The most that each class ever held."""
    memory = run.ranks[0].memory
    assert memory is not None
    assert memory.largest is not None
    return memory.largest


def number(run: Run, name: str) -> float:
    """A measure of the rank."""
    value = run.ranks[0].measures[name]
    assert isinstance(value, int | float)
    return value


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("name", "parameter", "gradient", "state"),
    [("fp32", 4, 4, 8), ("bf16", 4, 4, 8), ("master", 2, 2, 12), ("pure", 2, 2, 4)],
)
def test_autocast_leaves_the_state_of_a_parameter_as_it_is(
    run: Measure, name: str, parameter: int, gradient: int, state: int
) -> None:
    classes = largest(run("mixed_precision", name))
    assert classes.parameters_bytes == parameter * NUM_PARAMETERS
    assert classes.gradients_bytes == gradient * NUM_PARAMETERS
    # Adam counts its steps in a tensor for each of the sixteen parameters.
    counters = 0 if name in ("master", "pure") else 16 * 4
    assert classes.optimizer_bytes == state * NUM_PARAMETERS + counters


@pytest.mark.ranks
def test_autocast_narrows_layers_inputs_and_adds_copies_of_the_weights(run: Measure) -> None:
    full = largest(run("mixed_precision", "fp32")).activations_bytes
    narrow = largest(run("mixed_precision", "bf16")).activations_bytes
    assert full == pytest.approx((7 + 3) * SAMPLE_BYTES, abs=64)
    assert narrow == pytest.approx(
        8 * SAMPLE_BYTES // 2 + 3 * SAMPLE_BYTES + 7 * 2 * 128**2, abs=64
    )


@pytest.mark.ranks
def test_with_few_rows_autocast_holds_more(run: Measure) -> None:
    full, narrow = (run("mixed_precision", f"{name}_few_samples") for name in ("fp32", "bf16"))
    assert largest(narrow).activations_bytes > 2 * largest(full).activations_bytes


@pytest.mark.ranks
def test_a_scale_that_overflows_is_halved_at_each_skipped_update(run: Measure) -> None:
    overflowed = run("mixed_precision", "fp16_overflow")
    assert number(overflowed, "num_not_finite") > 0
    assert number(overflowed, "num_halvings") > 0
    assert number(overflowed, "num_halvings") + number(overflowed, "num_updates") == 8


@pytest.mark.ranks
def test_small_gradients_vanish_in_fp16_unless_the_loss_is_scaled(run: Measure) -> None:
    unscaled = run("mixed_precision", "fp16_unscaled")
    assert number(unscaled, "vanished_share") > number(
        run("mixed_precision", "fp16"), "vanished_share"
    )
    assert number(unscaled, "num_below_half") == number(unscaled, "num_cast_to_zero") > 0
    assert number(unscaled, "num_cast_to_zero_bf16") == 0


@pytest.mark.parametrize("factor", [0.25, 0.5, 0.5001, 1.0])
def test_fp16_rounds_to_zero_up_to_the_middle_of_its_smallest_number(factor: float) -> None:
    value = torch.tensor(factor * SMALLEST_HALF, dtype=torch.float64)
    assert (value.half() == 0).item() == (factor <= 0.5)


@pytest.mark.ranks
def test_without_a_master_copy_updates_are_lost(run: Measure) -> None:
    assert number(run("mixed_precision", "master"), "unchanged_share") == pytest.approx(0, abs=1e-3)
    assert number(run("mixed_precision", "pure"), "unchanged_share") > 0.3


def trained(make: Callable[[list[nn.Parameter]], torch.optim.Optimizer]) -> torch.Tensor:
    """A parameter after five updates with gradients that are the same each time."""
    source = torch.Generator().manual_seed(1)
    parameter = nn.Parameter(torch.randn(50, generator=source))
    optimizer = make([parameter])
    for _ in range(5):
        parameter.grad = torch.randn(50, generator=source)
        optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize("keeps_master", [True, False])
def test_the_narrow_adam_is_adam_where_nothing_is_narrow(keeps_master: bool) -> None:
    own = trained(lambda parameters: LowAdam(parameters, 0.01, keeps_master))
    theirs = trained(lambda parameters: torch.optim.Adam(parameters, lr=0.01))
    torch.testing.assert_close(own, theirs)


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"dtype": "float8"}, "dtype must be"), ({"initial_scale": 0.5}, "must be at least 1")],
)
def test_what_there_is_not_is_refused(changed: dict[str, Setting], said: str) -> None:
    plan = RUNS["fp16"]
    with pytest.raises(ValueError, match=said):
        replace(plan, settings=plan.settings.changed(changed))
