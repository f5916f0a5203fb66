"""Sealed forecasts: the committed file is the sealed one, and outcomes are scored beside it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from runners.planning import command, sealed
from runners.planning.one_rank import simulate_rank
from runners.planning.outcomes import outcome_of
from runners.planning.question import Model, Question, Training, strategy_of
from runners.planning.sealed import (
    FORECASTS,
    GIB,
    LimitOutcome,
    SealedError,
    SealedOutcomes,
    SuiteOutcome,
    read_forecasts,
    read_outcomes,
    score,
    sha256_of,
    write_forecasts,
)
from runners.simulate import allocator_check
from runners.simulate.allocation_replay import Allocate, Free, replay
from tests.runners.test_plan import LLAMA


def test_the_committed_forecasts_are_those_that_were_sealed():
    read_forecasts()
    read_outcomes()


def test_every_run_of_the_book_has_a_forecast_or_a_reason():
    forecasts = {one.id: one for one in read_forecasts().suite}
    # Runs may be added after the sealing, and renamed; none was left out of it.
    # A process of its own has the book's experiments alone; other tests bring some along, also by
    # the environment.
    ask = (
        "from runners.planning.seal import suite\n"
        "print(*(f'{one.experiment}.{one.run}' for one in suite()))"
    )
    own = {name: value for name, value in os.environ.items() if not name.startswith("PROOFBOOK")}
    told = subprocess.run(
        [sys.executable, "-c", ask], env=own, capture_output=True, text=True, check=True
    )
    now = set(told.stdout.split())
    assert len(now & forecasts.keys()) > 0.9 * len(now)
    assert all((one.peak_bytes is None) == bool(one.reason) for one in forecasts.values())


def test_a_dozen_configurations_lie_on_both_sides_of_an_80_gib_device():
    near = read_forecasts().near_limit
    assert sum(one.device_gib == 80 for one in near) >= 12
    assert {one.device_gib for one in near} == {24, 40, 80, 141}
    assert {one.fits for one in near} == {True, False}
    for one in near:
        assert one.fits == (one.least_reserved_bytes <= one.limit_bytes < one.device_gib * GIB)
        assert one.peak_bytes <= one.allocated_bytes <= one.least_reserved_bytes
        assert one.least_reserved_bytes <= one.reserved_bytes
        if one.seconds_at_least is not None:
            assert one.rate


def test_what_is_held_follows_the_sixteen_bytes_of_a_parameter():
    for one in read_forecasts().near_limit:
        training = one.question.training
        each = {"adam": 16, "adam8bit": 10 + 8 / 256, "sgd": 8, "momentum": 12}[training.optimizer]
        held = one.at_peak
        state = held.parameters_bytes + held.optimizer_bytes
        gradients = 2 if training.precision == "bf16-mixed" else 4
        exact = (each - gradients) * one.num_parameters
        assert exact * 0.999 <= state <= exact * 1.001


@pytest.fixture
def folder(tmp_path):
    """A copy of the sealed files."""
    for path in (FORECASTS, sealed.seal_path()):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_an_edit_of_the_forecasts_breaks_the_seal(folder):
    path = folder / FORECASTS.name
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"fits": true', '"fits": false', 1), encoding="utf-8")
    with pytest.raises(SealedError, match="is not the file"):
        read_forecasts(path)


def test_forecasts_are_written_once(folder, monkeypatch, capsys):
    path = folder / FORECASTS.name
    before = path.read_bytes()
    with pytest.raises(SealedError, match="is sealed"):
        write_forecasts(read_forecasts(path), path)
    monkeypatch.setattr(sealed, "FORECASTS", path)
    assert command.main(["--seal"]) == 2
    assert "made once" in capsys.readouterr().err
    assert path.read_bytes() == before


def outcomes_of(forecasts, **changes):
    """Outcomes as forecast, but for some changes of the first configuration that fits."""
    limits = [
        LimitOutcome(
            id=one.id,
            fits=one.fits,
            phase=None,
            peak_bytes=one.peak_bytes,
            allocated_bytes=one.allocated_bytes,
            reserved_bytes=min(one.reserved_bytes, one.limit_bytes),
            num_retries=0,
            step_seconds=1.0,
        )
        for one in forecasts.near_limit
    ]
    first = next(index for index, one in enumerate(limits) if one.fits)
    limits[first] = limits[first].model_copy(update=changes)
    suite = [
        SuiteOutcome(id=one.id, peak_bytes=one.peak_bytes, payload_bytes=one.payload_bytes)
        for one in forecasts.suite
    ]
    return SealedOutcomes(
        forecasts_sha256=sha256_of(),
        machine="some",
        recorded_at="2030-01-01T00:00:00+00:00",
        device="some",
        device_bytes=80 * GIB,
        torch="2.13.0",
        suite=suite,
        near_limit=limits,
    )


def test_outcomes_as_forecast_score_without_an_error():
    forecasts = read_forecasts()
    found = score(forecasts, outcomes_of(forecasts))
    assert found.misses == []
    assert found.wrong_verdicts == []
    assert found.num_verdicts == len(forecasts.near_limit)
    assert {found.median_error(what) for what in ("suite peak", "allocated", "reserved")} == {0.0}


def test_a_miss_and_a_wrong_verdict_are_named():
    forecasts = read_forecasts()
    first = next(one for one in forecasts.near_limit if one.fits)
    missed = score(
        forecasts, outcomes_of(forecasts, allocated_bytes=round(first.allocated_bytes / 1.25))
    )
    assert [(one.id, round(one.error, 3)) for one in missed.misses] == [(first.id, 0.25)]
    wrong = score(forecasts, outcomes_of(forecasts, fits=False, phase="backward"))
    assert wrong.wrong_verdicts == [first.id]
    assert f"    wrong: {first.id}" in sealed.lines(wrong)


def test_outcomes_of_other_forecasts_are_refused(tmp_path):
    other = outcomes_of(read_forecasts()).model_copy(update={"forecasts_sha256": "0" * 64})
    (tmp_path / "some.json").write_text(other.model_dump_json(), encoding="utf-8")
    with pytest.raises(SealedError, match="other forecasts"):
        read_outcomes(tmp_path)


def test_without_an_accelerator_there_are_no_outcomes(capsys, monkeypatch):
    monkeypatch.setenv("PROOFBOOK_DEVICE", "cpu")
    assert command.main(["--outcomes"]) == 2
    assert "need an accelerator" in capsys.readouterr().err


def test_the_steps_of_an_outcome_hold_what_was_forecast():
    """With real tensors on this CPU; what an accelerator's allocator counts stays 0."""
    question = Question(
        model=Model(name="tiny", architecture=LLAMA),
        training=Training(sequence=32, microbatch=2, global_batch=2, precision="fp32"),
        strategy=strategy_of("single", 1),
    )
    like = read_forecasts().near_limit[0]
    found = outcome_of(like.model_copy(update={"question": question}), torch.device("cpu"))
    assert found.fits
    assert found.step_seconds is not None
    assert found.peak_bytes == pytest.approx(simulate_rank(question, 0).peak_bytes, rel=0.02)


def test_the_check_of_the_allocator_frees_what_it_took():
    events = allocator_check.events()
    live = set()
    for event in events:
        if isinstance(event, Allocate):
            live.add(event.key)
        elif isinstance(event, Free):
            live.remove(event.key)
    assert len(live) <= allocator_check.MOST_LIVE
    replayed = replay(events)
    assert replayed.refusal is None
    assert replayed.peak_reserved_bytes > replayed.peak_allocated_bytes


@pytest.mark.gpu
def test_the_replay_reserves_what_this_machines_allocator_reserves():
    found = allocator_check.checked()
    if found is None:
        pytest.skip("no accelerator")
    assert found.agrees, found.line()
