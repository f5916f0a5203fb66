"""The constants of the intervals: fitted on runs that are known, and never scored on them."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest

from runners import __main__ as command
from runners.forecast import predict
from runners.forecast.fit import (
    FEWEST,
    FitError,
    MeteredRun,
    Runs,
    TimedRun,
    constants_of,
    fit,
    lines,
    runs_of,
    smallest,
)
from runners.forecast.model import BY_HAND, NINE_OF_TEN, Step, forecast_run, step_of
from runners.forecast.predict import bring_up_to_date
from runners.forecast.replay import FEATURES
from runners.forecast.weights import BEGIN, PRIORS, Taken, fitted_weights
from runners.measuring import measure
from runners.measuring.progress import Progress
from runners.plans.experiment import find
from runners.traces.files import read_fit, read_prediction, write_fit
from runners.traces.fit import Constants
from tests.runners.test_forecast_model import (
    NUM_PLACES,
    _called,
    _computed,
    _waited,
    machine_of_laws,
    work,
)


def test_weights_are_found_from_steps_that_follow_them():
    true = {"product": 1.4, "dtensor": 35.0, "collective": 0.7}
    shares = [(1, 0, 0), (1, 0, 1), (1, 0.1, 0), (2, 0.05, 1), (1, 0.02, 2), (3, 0.1, 0)]
    taken = []
    for number in range(60):
        parts = dict(zip(true, shares[number % len(shares)], strict=True))
        taken.append(Taken(parts, sum(parts[name] * true[name] for name in true)))
    found = fitted_weights(taken)
    assert {name: found[name] for name in true} == pytest.approx(true, rel=0.1)


def test_a_feature_that_no_run_has_keeps_its_first_weight():
    assert fitted_weights([]) == pytest.approx(BEGIN, rel=1e-3)
    assert fitted_weights([Taken({"product": 1.0}, 2.0)])["fsdp"] == BEGIN["fsdp"]
    assert set(PRIORS) == set(FEATURES) - {"link", "set"}


def test_one_run_that_errs_much_moves_weights_less_than_many_that_err_little():
    calm = [Taken({"product": 1.0}, 1.1) for _ in range(50)]
    wild = [Taken({"product": 1.0}, 30.0)]
    assert fitted_weights(calm + wild)["product"] == pytest.approx(1.1, rel=0.05)


def timed(experiment, deviation, share=0.0, spread=0.0, run="run", set_seconds=0.0):
    """A run whose outcome lies so many standard deviations' worth above its forecast."""
    parts = {"other": 1 - share, "collective": share, "set": set_seconds}
    step = Step({name: value for name, value in parts.items() if value}, {}, spread)
    return TimedRun(experiment, run, step, step.expected * math.exp(NINE_OF_TEN * deviation))


def metered(experiment, deviation):
    beyond = NINE_OF_TEN * deviation * 10**8 + 65_536
    return MeteredRun(experiment, "run", 10**8, round(10**8 + beyond))


TENTHS = [n / 10 for n in range(1, 11)]
EVENLY = [0.1, -0.1] * 5  # errors that no weight explains


def test_a_constant_is_the_smallest_that_reaches_nine_of_ten():
    assert smallest(TENTHS, 7.0) == 0.9
    assert smallest([*TENTHS, *TENTHS], 7.0) == 0.9
    assert smallest([0.00001] * FEWEST, 7.0) == 0.0001  # rounded up


def test_few_runs_leave_a_constant_as_it_was_set_by_hand():
    assert smallest([0.1] * (FEWEST - 1), 7.0) == 7.0
    assert constants_of(Runs([], []), BEGIN) == BY_HAND


def test_each_constant_is_fitted_on_runs_of_its_kind():
    found = constants_of(
        Runs(
            [
                *(timed("a", one) for one in TENTHS),
                *(timed("b", 2 * one, share=1.0) for one in TENTHS),
            ],
            [metered("a", one / 10) for one in TENTHS],
        ),
        {},
    )
    assert found.computing_error == pytest.approx(0.9, abs=2e-4)
    assert found.communication_error == pytest.approx(1.8, abs=2e-4)
    assert found.peak_error == pytest.approx(0.09, abs=2e-4)


def test_the_spread_of_the_primitives_is_taken_off_in_squares():
    found = constants_of(Runs([timed("a", 0.5, spread=0.3) for _ in range(10)], []), {})
    assert found.computing_error == pytest.approx(0.4, abs=2e-4)


def test_what_computing_explains_is_taken_off_a_step_that_is_half_communication():
    half = [timed("b", 0.5, share=0.5) for _ in range(10)]
    found = constants_of(Runs([*(timed("a", 0.6) for _ in range(10)), *half], []), {})
    assert found.communication_error == pytest.approx(0.4 / 0.5, abs=1e-3)


def test_fitted_constants_hold_nine_of_ten_of_the_runs_they_were_fitted_on():
    runs = Runs([timed("a", one, spread=0.05) for one in TENTHS], [])
    constants = constants_of(runs, {})
    assert [one.is_within(constants) for one in runs.timed].count(True) == 9


def test_steps_with_a_set_time_are_scored_and_not_fitted_on():
    free = [timed("a", one) for one in EVENLY]
    found = fit(Runs([*free, timed("b", 3.0, set_seconds=1.0)], []), "here", "now")
    assert found.constants.computing_error == pytest.approx(0.1, abs=2e-4)
    assert "b.run" not in found.computing_runs
    assert (found.without["b"].num_steps, found.without["b"].num_steps_within) == (1, 0)


def test_an_experiment_is_scored_with_constants_of_the_others():
    """One experiment errs ten times as much: its own runs must not widen its intervals."""
    calm = [timed("a", one) for one in EVENLY]
    wild = [timed("b", 10 * one) for one in EVENLY]
    found = fit(Runs([*calm, *wild], [metered("a", 0.01)]), "here", "now")
    assert found.constants.computing_error == pytest.approx(1.0, abs=2e-4)
    assert found.constants_for("b").computing_error == pytest.approx(0.1, abs=2e-4)
    assert found.constants_for("a").computing_error == pytest.approx(1.0, abs=2e-4)
    assert found.constants_for("new") == found.constants
    b, a = found.without["b"], found.without["a"]
    assert (b.num_steps, b.num_steps_within, b.num_peaks) == (10, 0, 0)
    assert (a.num_steps, a.num_steps_within, a.num_peaks) == (10, 10, 1)
    said = lines(found, None)
    assert "set by hand" in said[0]
    assert "10 of 20 steps" in said[-1]


def test_without_runs_there_is_nothing_to_fit_on(tmp_path, monkeypatch, capsys):
    with pytest.raises(FitError, match="python -m runners run"):
        fit(Runs([], []), "here", "now")
    with pytest.raises(FitError, match="python -m runners predict"):
        runs_of(tmp_path)
    monkeypatch.setattr(measure, "folder", lambda **_: tmp_path)
    assert command.main(["fit"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_step_of_some_work_has_the_interval_that_its_forecast_states():
    computed = _computed(("product", 64, 512, 512, 30), ("start.forward", 50))
    given = work(computed, _called("all_reduce", 1_000_000, 2), _waited(), ranks=2)
    constants = Constants(computing_error=0.2, communication_error=0.5, peak_error=0.01)
    primitives = machine_of_laws(spread=0.1)
    step = step_of(given, primitives, NUM_PLACES, {})
    told = forecast_run(given, primitives, NUM_PLACES, constants)
    assert told.step_seconds == step.interval(constants)
    share = step.communication_share
    assert 0 < share < 1
    deviation = math.hypot(0.2 * (1 - share), 0.5 * share, step.spread)
    assert told.step_seconds.high == pytest.approx(
        step.expected * math.exp(NINE_OF_TEN * deviation), rel=1e-3
    )


def test_predictions_use_the_constants_that_were_fitted_without_their_experiment(
    tmp_path, monkeypatch, launcher
):
    plain = find("heavier")
    given = work(_computed(("start.forward", 10))).model_copy(update={"peak_bytes": 10**9})
    runs = {"light": replace(plain.runs["light"], passes=("timed", "metered"))}
    experiment = replace(plain, runs=runs)
    monkeypatch.setattr(predict, "works", lambda _: {"heavier.light": given})
    monkeypatch.setattr(predict, "measured_primitives", lambda *_: machine_of_laws())
    monkeypatch.setattr(predict, "names", lambda: ["heavier"])
    monkeypatch.setattr(predict, "find", lambda _: experiment)
    monkeypatch.setattr("runners.traces.machine.TRACES", tmp_path)
    where = tmp_path / "machine"
    both = [timed("heavier", 10 * one) for one in EVENLY], [timed("a", 5 * one) for one in EVENLY]
    found = fit(
        Runs([*both[0], *both[1]], []),
        "reference-x",
        "2026-01-01T00:00:00Z",
    )
    write_fit(tmp_path / "reference-x", found)
    launcher_of_cpu = type("_Launcher", (), {"device": "cpu"})()
    bring_up_to_date([experiment], launcher_of_cpu, where, Progress(io.StringIO()))
    told = read_prediction(where)
    assert told.fit == "reference-x, 2026-01-01T00:00:00Z"
    assert read_fit(tmp_path / "reference-x") == found
    own = forecast_run(given, machine_of_laws(), 2, found.without["heavier"].constants)
    assert told.runs["heavier.light"].step_seconds == own.step_seconds
    assert (
        told.runs["heavier.light"].step_seconds
        != forecast_run(given, machine_of_laws(), 2, found.constants).step_seconds
    )
