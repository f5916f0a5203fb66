"""Sealed forecasts: the committed file is the sealed one, and outcomes are scored beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

from runners.planning import command, seal, sealed
from runners.planning.one_rank import simulate_rank
from runners.planning.outcomes import outcome_of
from runners.planning.question import Model, PlanError, Question, Training, strategy_of
from runners.planning.sealed import PATH, question_of, write_forecasts, write_outcomes
from runners.planning.table import GIB
from runners.simulate import allocator_check
from runners.simulate.allocation_replay import Allocate, Free, replay
from runners.traces.files import TraceError
from runners.traces.sealed_forecasts import (
    LimitOutcome,
    as_trace,
    read_forecasts,
    read_outcomes,
    read_sealed,
    run_of,
    seal_path,
)
from runners.traces.sealed_score import score
from tests.runners.test_plan import LLAMA
from tests.sealed_outcomes import outcomes_of

DDP_GRADIENT_BYTES = 4 * (10 * 64 + 64 + 64 * 4 + 4)  # of two layers in fp32


def test_the_committed_forecasts_are_those_that_were_sealed():
    read_forecasts(PATH)
    read_outcomes(PATH)


def test_every_forecast_has_a_run_of_its_own_in_the_trace():
    forecasts = read_forecasts(PATH)
    runs = as_trace(forecasts).runs
    simulated = [one for one in forecasts.suite if one.reason is None]
    assert len(runs) == len(simulated) + len(forecasts.near_limit)
    for one in simulated:
        measures = runs[run_of(one)].ranks[0].measures
        assert measures["peak_bytes"] == one.peak_bytes
        assert measures["payload_bytes"] == sum(one.payload_bytes.values())
    for one in forecasts.near_limit:
        run = runs[run_of(one)]
        assert run.settings["microbatch"] == question_of(one).training.microbatch
        assert run.ranks[0].measures["reserved_bytes"] == one.reserved_bytes


def test_every_run_of_the_book_has_a_forecast_or_a_reason():
    forecasts = {one.id: one for one in read_forecasts(PATH).suite}
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
    near = read_forecasts(PATH).near_limit
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
    for one in read_forecasts(PATH).near_limit:
        training = question_of(one).training
        each = {"adam": 16, "adam8bit": 10 + 8 / 256, "sgd": 8, "momentum": 12}[training.optimizer]
        held = one.at_peak
        state = held.parameters_bytes + held.optimizer_bytes
        gradients = 2 if training.precision == "bf16-mixed" else 4
        exact = (each - gradients) * one.num_parameters
        assert exact * 0.999 <= state <= exact * 1.001


@pytest.fixture
def folder(tmp_path):
    """A copy of the sealed files."""
    for path in (PATH, seal_path(PATH)):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_an_edit_of_the_forecasts_breaks_the_seal(folder):
    path = folder / PATH.name
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"fits": true', '"fits": false', 1), encoding="utf-8")
    with pytest.raises(TraceError, match="is not the file"):
        read_forecasts(path)
    seal_path(path).unlink()
    with pytest.raises(TraceError, match="missing"):
        read_sealed(path)
    path.unlink()
    assert read_sealed(path) is None


def test_forecasts_are_written_once(folder, monkeypatch, capsys):
    path = folder / PATH.name
    before = path.read_bytes()
    with pytest.raises(PlanError, match="is sealed"):
        write_forecasts(read_forecasts(path), path)
    monkeypatch.setattr(sealed, "PATH", path)
    assert command.main(["--seal"]) == 2
    assert "made once" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_outcomes_as_forecast_score_without_an_error():
    forecasts = read_forecasts(PATH)
    found = score(forecasts, outcomes_of(forecasts))
    assert found.misses == []
    assert found.wrong_verdicts == []
    assert found.num_verdicts == len(forecasts.near_limit)
    assert {found.median_error(what) for what in ("suite peak", "allocated", "reserved")} == {0.0}


def test_a_miss_and_a_wrong_verdict_are_named():
    forecasts = read_forecasts(PATH)
    first = next(one for one in forecasts.near_limit if one.fits)
    missed = score(
        forecasts, outcomes_of(forecasts, allocated_bytes=round(first.allocated_bytes / 1.25))
    )
    assert [(one.id, round(one.error, 3)) for one in missed.misses] == [(first.id, 0.25)]
    wrong = score(forecasts, outcomes_of(forecasts, fits=False, phase="backward"))
    assert wrong.wrong_verdicts == [first.id]
    assert f"    wrong: {first.id}" in sealed.lines(wrong)


OF_THE_SUITE = LimitOutcome(
    id="ddp.ddp", fits=True, phase=None, peak_bytes=1, allocated_bytes=1, reserved_bytes=1,
    num_retries=0, step_seconds=None,
).model_dump()  # fmt: skip


@pytest.mark.parametrize(
    ("machine", "change", "said"),
    [
        ("some", {"forecasts_sha256": "0" * 64}, "other forecasts"),
        ("other", {"machine": "some"}, "machine: is 'some'"),
        ("some", {"suite": [{"id": "no.run", "peak_bytes": 1, "payload_bytes": {}}]}, "no.run"),
        ("some", {"near_limit": [OF_THE_SUITE]}, "ddp.ddp"),
        ("some", {"device_bytes": "much"}, "device_bytes"),
    ],
)
def test_outcomes_that_do_not_belong_to_the_forecasts_are_refused(folder, machine, change, said):
    outcomes = outcomes_of(read_forecasts(PATH)).model_dump(mode="json")
    file = folder / "sealed_outcomes" / f"{machine}.json"
    file.parent.mkdir()
    file.write_text(json.dumps({**outcomes, **change}), encoding="utf-8")
    with pytest.raises(TraceError, match=said) as refused:
        read_sealed(folder / PATH.name)
    assert str(refused.value).startswith(str(file))


def test_outcomes_are_read_as_they_were_written(folder):
    path = folder / PATH.name
    outcomes = outcomes_of(read_forecasts(path), "rack/half")
    write_outcomes(outcomes, path)
    assert read_sealed(path).outcomes == (outcomes,)


def test_that_a_run_without_peers_sends_nothing_counts_as_no_forecast():
    forecasts = read_forecasts(PATH)
    silent = {one.id for one in forecasts.suite if not any(one.payload_bytes.values())}
    pairs = score(forecasts, outcomes_of(forecasts)).of("suite payload")
    assert silent
    assert pairs
    assert not silent & {one.id for one in pairs}


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
    like = read_forecasts(PATH).near_limit[0]
    found = outcome_of(
        like.model_copy(update={"question": question.model_dump()}), torch.device("cpu")
    )
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


def test_a_sealed_run_can_be_simulated_again():
    forecast = next(one for one in read_forecasts(PATH).suite if one.id == "ddp.ddp")
    again = seal.again([run_of(forecast)])
    assert list(again) == [run_of(forecast)]
    assert again[run_of(forecast)].ranks[0].measures["payload_bytes"] == DDP_GRADIENT_BYTES


def test_a_run_that_cannot_be_simulated_again_says_so_in_one_line(monkeypatch):
    forecast = next(one for one in read_forecasts(PATH).suite if one.id == "ddp.ddp")
    monkeypatch.setattr(
        seal, "_of_run", lambda _: forecast.model_copy(update={"reason": "no such operator"})
    )
    with pytest.raises(PlanError, match=r"ddp\.ddp: no such operator"):
        seal.again([run_of(forecast)])
