"""Forecasts against a machine whose laws are known: its primitives follow them exactly."""

from __future__ import annotations

import pytest

from runners.forecast.model import best, forecast_run
from runners.forecast.primitive_sizes import (
    BUSY,
    COLLECTIVES,
    COMMUNICATED_BYTES,
    ELEMENTWISE_BYTES,
    MATRICES,
    OPTIMIZED_PARAMETERS,
    SMOOTH_VALUES,
)
from runners.forecast.replay import TURN_SECONDS
from runners.forecast.work import RankWork, Work
from runners.plans.closed_forms import pipeline_idle_share, ring_bytes
from runners.simulate.step_log import Moment
from runners.traces.fit import Constants
from runners.traces.measured import SampledSeconds
from runners.traces.prediction import Interval

FLOPS_PER_SECOND = 5e10
BYTES_PER_SECOND = 1e10
SECONDS_PER_NEW_BYTE = 5e-10
OPERATION_SECONDS = 1e-6
STEP_SECONDS = 1e-4
PARAMETERS_PER_SECOND = 1e9
ALPHA_SECONDS, SECONDS_PER_BYTE = 1e-3, 1e-9
SECONDS_PER_VALUE = 1e-9
NUM_PLACES = 2
MEASURED = Constants(computing_error=0.1, communication_error=0.1, peak_error=0.01)


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
        + (num_bytes * SECONDS_PER_NEW_BYTE if num_bytes == ELEMENTWISE_BYTES[-1] else 0)
        for num_bytes in ELEMENTWISE_BYTES
    }
    updates = {
        f"fused_adam_{number}_{busy}_seconds": number / PARAMETERS_PER_SECOND
        for number in OPTIMIZED_PARAMETERS
    }
    in_place = {
        f"sgd_{number}_{busy}_seconds": 12 * number / BYTES_PER_SECOND
        for number in OPTIMIZED_PARAMETERS
    }
    return {
        **products,
        **passes,
        **updates,
        **in_place,
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


def _computed(*costs):
    return Moment(kind="compute", costs=[_padded(one) for one in costs])


def _padded(cost):
    """A cost with its missing sizes as zero: a kind, sizes, and how often."""
    kind, *sizes, count = cost
    return (kind, *sizes, *[0] * (3 - len(sizes)), count)


def _called(operation, num_bytes, ranks, call=1, peer=None):
    return Moment(
        kind="begin",
        call=call,
        operation=operation,
        bytes=num_bytes,
        ranks=list(range(ranks)),
        peer=peer,
    )


def _waited(call=1):
    return Moment(kind="wait", call=call)


def work(*moments, ranks=1, touched=0):
    """The work of alike ranks."""
    return Work(num_ranks=ranks, ranks=[RankWork(moments=list(moments), touched_bytes=touched)])


def _step(given, primitives=None, weights=None, **more):
    constants = MEASURED.model_copy(update={"weights": weights or {}})
    told = forecast_run(given, primitives or machine_of_laws(), NUM_PLACES, constants, **more)
    assert told.step_seconds is not None
    return told.step_seconds.expected


def test_products_take_their_operations_at_the_machines_rate():
    given = work(_computed(("product", 300, 500, 500, 11), ("start.forward", 100)))
    flops = 11 * 2 * 300 * 500 * 500
    expected = flops / FLOPS_PER_SECOND + 100 * OPERATION_SECONDS
    assert _step(given) == pytest.approx(expected, rel=0.03)


def test_only_a_step_with_a_backward_pass_costs_what_steps_cost_besides():
    forward = work(_computed(("start.forward", 100)))
    backward = work(_computed(("start.backward", 100)))
    assert _step(backward) - _step(forward) == pytest.approx(STEP_SECONDS)


@pytest.mark.parametrize(("rows", "size"), [(3, 100), (40, 40), (5000, 3000), (8, 4000)])
def test_the_rate_holds_beyond_what_was_measured(rows, size):
    flops = 6.0 * rows * size * size
    beyond = _step(work(_computed(("product", rows, size, size, 3))))
    # Few rows, and narrow layers, are never faster than the smallest that was measured.
    assert flops / FLOPS_PER_SECOND * 0.9 <= beyond
    if rows >= 8 and size >= 64:
        assert beyond == pytest.approx(flops / FLOPS_PER_SECOND, rel=0.05)


@pytest.mark.parametrize("num_bytes", [1 << 20, 1 << 22, 1 << 25, 1 << 28])
def test_passing_over_memory_takes_bytes_by_the_machines_rate(num_bytes):
    given = work(_computed(("pass", num_bytes, 0, 40), ("start.forward", 40)))
    expected = 40 * num_bytes / BYTES_PER_SECOND + 40 * OPERATION_SECONDS
    assert _step(given) == pytest.approx(expected, rel=0.03)


def test_memory_that_is_new_costs_what_the_kernel_takes_for_it():
    given = _computed(("pass", 1 << 22, 0, 1))
    extra = _step(work(given, touched=10**8)) - _step(work(given))
    assert extra == pytest.approx(10**8 * SECONDS_PER_NEW_BYTE, rel=0.01)


def test_smooth_functions_take_their_values_by_the_machines_rate():
    given = work(_computed(("smooth", 1_000_000, 5), ("start.forward", 5)))
    assert _step(given) == pytest.approx(5e6 * SECONDS_PER_VALUE + 5 * OPERATION_SECONDS, rel=0.001)


def test_an_update_takes_its_parameters_by_the_machines_rate():
    given = work(_computed(("update", 3_000_000, 1)))
    assert _step(given) == pytest.approx(3_000_000 / PARAMETERS_PER_SECOND, rel=0.02)


def test_a_weight_multiplies_its_feature_alone():
    given = work(_computed(("update", 3_000_000, 1), ("start.optimizer", 1000)))
    plain = _step(given)
    slow = _step(given, weights={"optimizer": 11.0, "dtensor": 50.0})
    assert slow - plain == pytest.approx(10 * 1000 * OPERATION_SECONDS)


def test_a_collective_costs_its_start_and_its_bytes():
    large = work(_called("all_gather", 16 * 16_777_216, 2), _waited(), ranks=2)
    assert _step(large) == pytest.approx(16 * 16_777_216 * SECONDS_PER_BYTE, rel=0.08)
    small = [(_called("broadcast", 4_096, 2, k), _waited(k)) for k in range(4)]
    flat = [moment for pair in small for moment in pair]
    assert _step(work(*flat, ranks=2)) == pytest.approx(4 * ALPHA_SECONDS, rel=0.01)


def test_what_runs_while_a_rank_computes_costs_it_its_interference_alone():
    computing = _computed(("start.backward", 50_000))
    meanwhile = (_called("all_reduce", 16_777_216, 2), computing, _waited())
    alone, weights = _step(work(computing)), {"interference": 0.0}
    assert _step(work(*meanwhile, ranks=2), weights=weights) == pytest.approx(alone)
    reduced = ALPHA_SECONDS + 16_777_216 * SECONDS_PER_BYTE
    disturbed = _step(work(*meanwhile, ranks=2), weights={"interference": 0.5})
    assert disturbed - alone == pytest.approx(reduced / 2, rel=0.01)


def test_what_computing_does_not_hide_is_waited_for():
    short = _computed(("start.forward", 1000))
    reduced = ALPHA_SECONDS + 16_777_216 * SECONDS_PER_BYTE
    given = work(_called("all_reduce", 16_777_216, 2), short, _waited(), ranks=2)
    assert _step(given, weights={"interference": 0.0}) == pytest.approx(reduced, rel=0.01)


def test_collectives_of_a_group_run_one_after_another():
    both = [_called("all_reduce", 4_096, 2, k) for k in (1, 2)]
    given = work(*both, _waited(1), _waited(2), ranks=2)
    assert _step(given, weights={"interference": 0.0}) == pytest.approx(2 * ALPHA_SECONDS, rel=0.01)


def test_three_ranks_lie_between_two_and_four():
    of = {n: _step(work(_called("all_reduce", 1 << 24, n), _waited(), ranks=n)) for n in (2, 3, 4)}
    assert of[2] < of[3] < of[4]


def test_over_a_link_of_a_set_speed_a_ring_takes_its_bytes_in_full_frames():
    given = work(_called("all_reduce", 10**6, 2), _waited(), ranks=2)
    seconds = 8 * ring_bytes(10**6, 2) * 1514 / 1448 / 10**7
    assert _step(given, bits_per_second=10**7) == pytest.approx(seconds, rel=1e-3)
    assert _step(given, bits_per_second=10**12) == pytest.approx(_step(given))


def _layers(ranks):
    return work(_computed(("product", 512, 1024, 1024, 24)), ranks=ranks)


def test_ranks_without_a_core_of_their_own_take_turns():
    alone = _step(_layers(1))
    assert _step(_layers(2)) == pytest.approx(alone)
    assert _step(_layers(4)) == pytest.approx(2 * alone, rel=0.01)
    # Four ranks on two cores, where taking turns costs a quarter more.
    assert _step(_layers(4), machine_of_laws(crowding=1.25)) == pytest.approx(2.5 * alone, rel=0.01)


def test_a_step_shorter_than_a_turn_that_meets_nobody_is_seldom_interrupted():
    short = _computed(("start.forward", 50))
    assert _step(work(short, ranks=4)) == pytest.approx(_step(work(short)))
    assert _step(work(short)) < TURN_SECONDS
    meets = work(short, _called("all_reduce", 4, 4), _waited(), ranks=4)
    assert _step(meets) - ALPHA_SECONDS > 1.5 * _step(work(short))


def _stage(rank, num_ranks, num_parts):
    """What one stage of a pipeline does that only goes forward, and meets the others at the end."""
    moments = []
    for part in range(num_parts):
        if rank > 0:
            moments += [_called("recv", 4_096, num_ranks, part + 1, rank - 1), _waited(part + 1)]
        moments.append(_computed(("start.forward", 100_000)))
        if rank < num_ranks - 1:
            call = num_parts + part + 1
            moments += [_called("send", 4_096, num_ranks, call, rank + 1), _waited(call)]
    moments += [_called("all_reduce", 4, num_ranks, 99), _waited(99)]
    return RankWork(moments=moments, touched_bytes=0)


@pytest.mark.parametrize(("num_ranks", "num_parts"), [(2, 1), (2, 4), (4, 8)])
def test_a_pipeline_fills_and_drains_as_its_closed_form_says(num_ranks, num_parts):
    free = {"message": 0.0, "collective": 0.0}
    stages = [_stage(rank, num_ranks, num_parts) for rank in range(num_ranks)]
    constants = MEASURED.model_copy(update={"weights": free})
    told = forecast_run(
        Work(num_ranks=num_ranks, ranks=stages), machine_of_laws(), num_ranks, constants
    )
    busy = num_parts * 100_000 * OPERATION_SECONDS
    idle_share = pipeline_idle_share(num_parts, num_ranks)
    assert told.step_seconds.expected == pytest.approx(busy / (1 - idle_share), rel=0.01)


def test_ranks_that_wait_for_each_other_for_ever_have_no_step():
    waits = [
        RankWork(moments=[_called("recv", 8, 2, 1, 1 - rank), _waited()], touched_bytes=0)
        for rank in (0, 1)
    ]
    told = forecast_run(Work(num_ranks=2, ranks=waits), machine_of_laws(), NUM_PLACES)
    assert told.step_seconds is None


def test_what_is_set_is_no_guess():
    given = work(_computed(("start.forward", 1000)), Moment(kind="sleep", seconds=2.0))
    told = forecast_run(given, machine_of_laws(), NUM_PLACES)
    assert told.step_seconds.expected == pytest.approx(2.0 + 1000 * OPERATION_SECONDS)
    assert told.step_seconds.low > 2.0


def test_an_interval_is_wider_where_primitives_were_noisy():
    calm, noisy = (
        forecast_run(_layers(1), machine_of_laws(s), NUM_PLACES).step_seconds for s in (0.0, 0.8)
    )
    assert calm.low < calm.expected < calm.high
    assert noisy.high / noisy.low > 1.2 * calm.high / calm.low


def test_a_peak_is_that_of_the_simulation_and_its_interval_a_few_percent():
    told = forecast_run(Work(peak_bytes=100_000_000), machine_of_laws(), NUM_PLACES).peak_bytes
    assert told.expected == 100_000_000
    assert 0.97e8 < told.low < told.high < 1.03e8


def test_what_cannot_be_simulated_is_not_predicted_and_says_why():
    told = forecast_run(Work(reason="it does not end"), machine_of_laws(), NUM_PLACES)
    assert (told.peak_bytes, told.step_seconds) == (None, None)
    assert told.reason == "it does not end"
    assert forecast_run(None, machine_of_laws(), NUM_PLACES).reason


def test_a_step_whose_collectives_could_not_be_measured_is_not_predicted():
    alone = {n: s for n, s in machine_of_laws().items() if not n.startswith(COLLECTIVES)}
    given = work(_called("all_reduce", 8, 2), _waited(), ranks=2)
    told = forecast_run(given.model_copy(update={"peak_bytes": 10_000_000}), alone, NUM_PLACES)
    assert told.peak_bytes.expected == 10_000_000
    assert told.step_seconds is None
    assert "could not be measured" in told.reason


def test_the_best_run_is_named_only_where_all_are_predicted():
    def interval(expected):
        return Interval(expected=expected, low=0.0, high=9.0)

    assert best([("a", interval(2.0)), ("b", interval(1.0))]) == "b"
    assert best([("a", interval(2.0)), ("b", None)]) is None
    assert best([]) is None
