"""Forecasts against a machine whose laws are known: its primitives follow them exactly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runners.forecast.model import TURN_SECONDS, best, forecast_run
from runners.forecast.primitive_sizes import (
    BUSY,
    COLLECTIVES,
    COMMUNICATED_BYTES,
    ELEMENTWISE_BYTES,
    MATRICES,
    OPTIMIZED_PARAMETERS,
    OPTIMIZERS,
    SMOOTH_VALUES,
)
from runners.plans.work import Communication, Work, mlp_flops, stack_work
from runners.traces.measured import SampledSeconds
from runners.traces.prediction import Interval

FLOPS_PER_SECOND = 5e10
BYTES_PER_SECOND = 1e10
OPERATION_SECONDS = 1e-6
STEP_SECONDS = 1e-4
PARAMETERS_PER_SECOND = 1e9
ALPHA_SECONDS, SECONDS_PER_BYTE = 1e-3, 1e-9
SECONDS_PER_VALUE = 1e-9
NUM_PLACES = 2


def _samples(seconds, spread=0.0):
    return SampledSeconds.of([seconds * (1 + spread * k / 2) for k in (-2, -1, 0, 1, 2)])


def _computing(busy):
    """What one of several busy ranks does, by name; each has a core of its own."""
    products = {
        f"matrix_{rows}x{size}_{busy}_seconds": 6 * rows * size * size / FLOPS_PER_SECOND
        + 3 * OPERATION_SECONDS
        for rows, size in MATRICES
    }
    passes = {
        f"elementwise_{num_bytes}_{busy}_seconds": 2 * num_bytes / BYTES_PER_SECOND
        for num_bytes in ELEMENTWISE_BYTES
    }
    updates = {
        f"{optimizer}_{number}_{busy}_seconds": number / PARAMETERS_PER_SECOND
        for optimizer in OPTIMIZERS
        for number in OPTIMIZED_PARAMETERS
    }
    return {
        **products,
        **passes,
        **updates,
        f"operation_{busy}_seconds": OPERATION_SECONDS,
        f"smooth_{busy}_seconds": 2 * SMOOTH_VALUES * SECONDS_PER_VALUE,
        f"step_{busy}_seconds": STEP_SECONDS,
        f"crowded_{busy}_seconds": 0.001,
    }


def machine_of_laws(spread=0.0, crowding=1.0):
    """Primitives of a machine with two cores that does everything at one rate."""
    reductions = {
        f"{name}_{ranks}_{num_bytes}_seconds": ALPHA_SECONDS
        + num_bytes * SECONDS_PER_BYTE * (ranks / 2)
        for ranks in BUSY[1:]
        for name in COLLECTIVES
        for num_bytes in COMMUNICATED_BYTES
    }
    crowd = {"crowded_4_seconds": 0.002 * crowding}
    taken = {**_computing(1), **_computing(2), **crowd, **reductions}
    return {name: _samples(seconds, spread) for name, seconds in taken.items()}


def _step(work, primitives=None):
    told = forecast_run(work, primitives or machine_of_laws(), NUM_PLACES)
    assert told.step_seconds is not None
    return told.step_seconds.expected


def test_products_take_their_operations_at_the_machines_rate():
    widths = [500] * 5
    work = Work(
        flops=mlp_flops(widths, 300),
        matrix_rows=300,
        num_products=11,
        num_operations=100,
    )
    expected = work.flops / FLOPS_PER_SECOND + 100 * OPERATION_SECONDS + STEP_SECONDS
    assert _step(work) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(("rows", "size"), [(3, 100), (40, 40), (5000, 3000), (8, 4000)])
def test_the_rate_holds_beyond_what_was_measured(rows, size):
    flops = 6.0 * rows * size * size
    work = Work(flops=flops, matrix_rows=rows, num_products=3, num_operations=3)
    beyond = _step(work) - STEP_SECONDS - 3 * OPERATION_SECONDS
    # Few rows, and narrow layers, are never faster than the smallest that was measured.
    assert flops / FLOPS_PER_SECOND * 0.9 <= beyond
    if rows >= 8 and size >= 64:
        assert beyond == pytest.approx(flops / FLOPS_PER_SECOND, rel=0.05)


def test_passing_over_memory_takes_bytes_by_the_machines_rate():
    work = Work(moved_bytes=2e8, block_bytes=1 << 22, num_operations=50)
    expected = 2e8 / BYTES_PER_SECOND + 50 * OPERATION_SECONDS + STEP_SECONDS
    assert _step(work) == pytest.approx(expected, rel=0.03)


def test_smooth_functions_take_their_values_by_the_machines_rate():
    work = Work(smooth_values=5e6, num_operations=1)
    expected = 5e6 * SECONDS_PER_VALUE + OPERATION_SECONDS + STEP_SECONDS
    assert _step(work) == pytest.approx(expected, rel=0.001)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_update_takes_its_parameters_by_the_machines_rate(optimizer):
    work = Work(optimizer_parameters=3_000_000, optimizer=optimizer, num_operations=1)
    expected = 3_000_000 / PARAMETERS_PER_SECOND + OPERATION_SECONDS + STEP_SECONDS
    assert _step(work) == pytest.approx(expected, rel=0.02)


def test_an_exchange_costs_its_starts_and_its_bytes_but_for_what_computing_hides():
    exchange = Communication("all_gather", 64 * 16_777_216, 4, 2)
    seconds = 64 * 16_777_216 * SECONDS_PER_BYTE
    assert _step(Work(communication=(exchange,))) == pytest.approx(seconds, rel=0.08)
    hidden = replace(exchange, hidden_share=0.75)
    assert _step(Work(communication=(hidden,))) == pytest.approx(seconds / 4, rel=0.08)
    small = Communication("broadcast", 4 * 4_096, 4, 2)
    assert _step(Work(communication=(small,))) == pytest.approx(4 * ALPHA_SECONDS, rel=0.01)


def test_three_ranks_lie_between_two_and_four():
    of = {
        n: _step(Work(communication=(Communication("all_reduce", 1 << 24, 1, n),)))
        for n in (2, 3, 4)
    }
    assert of[2] < of[3] < of[4]


def test_ranks_without_a_core_of_their_own_take_turns():
    work = stack_work([1024] * 9, 512)
    alone = _step(work)
    crowd = replace(work, num_busy_ranks=4)
    assert _step(replace(work, num_busy_ranks=2)) == pytest.approx(alone)
    assert _step(crowd) == pytest.approx(2 * alone, rel=0.01)
    # Four ranks on two cores, where taking turns costs a quarter more.
    assert _step(crowd, machine_of_laws(crowding=1.25)) == pytest.approx(2.5 * alone, rel=0.01)


def test_a_step_shorter_than_a_turn_that_meets_nobody_is_seldom_interrupted():
    short = Work(num_operations=50, num_busy_ranks=4)
    assert _step(short) == pytest.approx(_step(replace(short, num_busy_ranks=1)))
    assert _step(short) < TURN_SECONDS
    meets = replace(short, communication=(Communication("all_reduce", 4, 1, 4),))
    assert _step(meets) - ALPHA_SECONDS > 1.5 * _step(short)


def test_what_passes_one_after_another_counts_so_often_and_what_is_set_once():
    work = stack_work([256] * 4, 64)
    once = _step(work)
    told = forecast_run(
        replace(work, num_sequential=3.0, extra_seconds=2.0), machine_of_laws(), NUM_PLACES
    )
    assert told.step_seconds.expected == pytest.approx(3 * once + 2.0, rel=0.01)
    assert told.step_seconds.low > 2.0  # what is set is no guess


def test_an_interval_is_wider_where_primitives_were_noisy():
    work = stack_work([256] * 4, 64)
    calm, noisy = (
        forecast_run(work, machine_of_laws(s), NUM_PLACES).step_seconds for s in (0.0, 0.8)
    )
    assert calm.low < calm.expected < calm.high
    assert noisy.high / noisy.low > 1.2 * calm.high / calm.low


def test_a_peak_is_the_closed_form_and_its_interval_a_few_percent():
    told = forecast_run(Work(peak_bytes=100_000_000), machine_of_laws(), NUM_PLACES).peak_bytes
    assert told.expected == 100_000_000
    assert 0.97e8 < told.low < told.high < 1.03e8


def test_what_no_closed_form_says_is_not_predicted_and_says_why():
    told = forecast_run(None, machine_of_laws(), NUM_PLACES)
    assert (told.peak_bytes, told.step_seconds) == (None, None)
    assert told.reason


def test_a_step_whose_exchanges_could_not_be_measured_is_not_predicted():
    alone = {n: s for n, s in machine_of_laws().items() if not n.startswith(COLLECTIVES)}
    work = Work(peak_bytes=10_000_000, communication=(Communication("all_reduce", 8, 1, 2),))
    told = forecast_run(work, alone, NUM_PLACES)
    assert told.peak_bytes.expected == 10_000_000
    assert told.step_seconds is None
    assert "could not be measured" in told.reason


def test_the_best_run_is_named_only_where_all_are_predicted():
    def interval(expected):
        return Interval(expected=expected, low=0.0, high=9.0)

    assert best([("a", interval(2.0)), ("b", interval(1.0))]) == "b"
    assert best([("a", interval(2.0)), ("b", None)]) is None
    assert best([]) is None
