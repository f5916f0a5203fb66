"""What is predicted of the book's runs: from settings alone, and how near it comes."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace

import pytest

from runners.forecast import predict
from runners.forecast.predict import bring_up_to_date, predicted
from runners.forecast.primitive_sizes import (
    COLLECTIVES,
    COMMUNICATED_BYTES,
    ELEMENTWISE_BYTES,
    MATRICES,
    needed,
)
from runners.forecast.work import Work, stale, works
from runners.measuring.progress import Progress
from runners.plans.experiment import PRIMITIVES, find
from runners.plans.work import Choice
from runners.traces import files as trace
from runners.traces.files import NOT_TRACES, read, read_prediction
from runners.traces.records import Run, Trace
from tests.runners.test_forecast_model import machine_of_laws

NEAR = 0.01  # the aim for memory


@pytest.fixture
def committed(root) -> dict[str, Trace]:
    """The reference machine's traces of experiments that predict something."""
    paths = sorted((root / "content" / "traces").glob("reference-*/*.json"))
    return {p.stem: read(p) for p in paths if p.stem not in NOT_TRACES}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_every_run_is_predicted_from_its_settings_or_not_at_all(book, monkeypatch):
    experiments = [find(name) for name in book]

    def closed(_):
        raise AssertionError("a forecast that reads a trace is none")

    known = {name: one for e in experiments for name, one in works([e]).items()}
    monkeypatch.setattr(trace, "_text", closed)
    monkeypatch.setattr(predict, "works", lambda _: known)
    runs, choices, failed = predicted(experiments, machine_of_laws(), 2)
    assert failed == []
    assert set(runs) == {f"{e.name}.{name}" for e in experiments for name in e.runs}
    counts = Counter(e.name for e in experiments for n in e.runs if _says(runs[f"{e.name}.{n}"]))
    assert counts.total() > 100
    for interval in (i for told in runs.values() for i in (told.peak_bytes, told.step_seconds)):
        assert interval is None or 0 <= interval.low <= interval.expected < interval.high
    for choice in choices:
        assert choice.expected in choice.runs
        assert set(choice.runs) <= set(find(choice.experiment).runs)


def _says(told):
    return told.peak_bytes is not None or told.step_seconds is not None


def test_nearly_every_peak_is_that_of_its_simulation(committed):
    """An invariant of the committed traces: bytes do not depend on how busy a machine is."""
    apart = {}
    for name, taken in committed.items():
        experiment = find(name)
        known = works([experiment])
        for run_name, run in taken.runs.items():
            plan, work = experiment.runs.get(run_name), known.get(f"{name}.{run_name}")
            if plan is None or work is None or run.settings != plan.settings.as_json():
                continue
            peak = _peak(run)
            if work.peak_bytes and peak:
                apart[f"{name}.{run_name}"] = abs(work.peak_bytes / peak - 1)
    far = {name: share for name, share in apart.items() if share > NEAR}
    assert len(apart) > 140
    assert len(far) <= len(apart) / 50, far


def test_the_committed_work_is_that_of_the_code_as_it_stands(book):
    """Else every clone simulates the book's runs before its first prediction."""
    missing = stale([find(name) for name in book])
    assert missing == [], "run `python -m runners simulate --keep` and commit forecast/work.json"


def _peak(run: Run) -> int:
    return max((r.memory.peak_bytes or 0 for r in run.ranks if r.memory), default=0)


@pytest.mark.ranks
def test_the_primitives_are_those_that_forecasts_need(launcher):
    """One rank's computing and two ranks' reductions: every name, and sizes that show."""
    experiment = find(PRIMITIVES)
    taken = {}
    for run in ("compute_1", "communicate_2"):
        result = launcher.run_pass(experiment, run, "timed")
        assert result.root_cause is None
        taken |= {n: sorted(s)[0] for n, s in result.outcomes[0].measured_seconds.items()}
    assert needed() <= set(taken)
    assert {f"{c}_2_{b}_seconds" for c in COLLECTIVES for b in COMMUNICATED_BYTES} <= set(taken)
    few, many = (f"matrix_{r}x{s}_1_seconds" for r, s in (MATRICES[0], MATRICES[-1]))
    assert taken[many] > 10 * taken[few]
    small, large = (
        f"elementwise_{b}_1_seconds" for b in (ELEMENTWISE_BYTES[0], ELEMENTWISE_BYTES[-1])
    )
    assert taken[large] > 10 * taken[small]


# --- what stands in prediction.json


class _Launcher:
    device = "cpu"


def _experiment(widths):
    """Two runs whose peak is their setting."""
    plans = {
        n: replace(find("heavier").runs["light"], settings={"peak": p}) for n, p in widths.items()
    }
    return replace(
        find("heavier"),
        runs={n: replace(p, passes=("timed", "metered")) for n, p in plans.items()},
        choices=(Choice("small", "Which is smaller?", ("a", "b"), by="peak_bytes"),),
    )


def _works(experiments):
    """The peak of each run of `_experiment` is its setting."""
    return {
        f"{one.name}.{name}": Work(peak_bytes=plan.settings["peak"])
        for one in experiments
        for name, plan in one.runs.items()
    }


@pytest.fixture
def folder(tmp_path, monkeypatch, launcher):
    """A machine's folder in which `_experiment` is all there is."""
    monkeypatch.setattr(predict, "measured_primitives", lambda *_: machine_of_laws())
    monkeypatch.setattr(predict, "names", lambda: ["heavier"])
    monkeypatch.setattr(predict, "find", lambda _: _experiment({"a": 10_000_000, "b": 20_000_000}))
    monkeypatch.setattr(predict, "works", _works)
    return tmp_path / "machine"


def _updated(folder, experiment):
    bring_up_to_date([experiment], _Launcher(), folder, Progress(io.StringIO()))
    return read_prediction(folder)


def test_a_machine_without_a_prediction_gets_one_of_everything(folder):
    told = _updated(folder, _experiment({"a": 10_000_000, "b": 20_000_000}))
    assert {n: run.peak_bytes.expected for n, run in told.runs.items()} == {
        "heavier.a": 10_000_000,
        "heavier.b": 20_000_000,
    }
    assert [(c.name, c.expected) for c in told.choices] == [("small", "a")]
    assert told.machine == "machine"


def test_a_run_whose_simulation_failed_has_no_forecast_and_is_named(folder, monkeypatch):
    _updated(folder, _experiment({"a": 10_000_000, "b": 20_000_000}))
    changed = _experiment({"a": 10_000_000, "b": 30_000_000})
    failed = Work(reason="ValueError: a fault", has_failed=True)
    monkeypatch.setattr(predict, "works", lambda some: _works(some) | {"heavier.b": failed})
    told = bring_up_to_date([changed], _Launcher(), folder, Progress(io.StringIO()))
    assert told == ["heavier.b: ValueError: a fault"]
    assert set(read_prediction(folder).runs) == {"heavier.a"}


def test_the_prediction_of_a_part_of_a_machine_names_the_machine_and_the_part(folder, monkeypatch):
    monkeypatch.setattr("runners.traces.machine.TRACES", folder.parent)
    told = _updated(folder / "1-of-2-cores", _experiment({"a": 1, "b": 2}))
    assert told.machine == "machine/1-of-2-cores"


def test_primitives_of_an_earlier_model_are_measured_anew(folder):
    whole = _updated(folder, _experiment({"a": 10_000_000, "b": 20_000_000}))
    fewer = {n: s for n, s in whole.primitives.items() if n != "smooth_1_seconds"}
    trace.write_prediction(folder, whole.model_copy(update={"primitives": fewer}))
    after = _updated(folder, _experiment({"a": 10_000_000, "b": 20_000_000}))
    assert after.primitives == whole.primitives


def test_primitives_that_mean_nothing_on_a_machine_are_left_out():
    runs = find(PRIMITIVES).runs

    def taken(device, places):
        return {n for n, plan in runs.items() if not predict._is_left_out(plan, device, places)}

    assert taken("cpu", 2) == {
        "compute_1",
        "compute_2",
        "crowd_4",
        "communicate_2",
        "communicate_4",
    }
    assert taken("cpu", 8) == {
        "compute_1",
        "compute_2",
        "compute_4",
        "communicate_2",
        "communicate_4",
    }
    assert taken("cuda", 1) == {"compute_1"}
    assert taken("cuda", 2) == {"compute_1", "compute_2", "communicate_2"}


def test_what_was_predicted_is_left_as_it_is_and_what_changed_says_when(folder, monkeypatch):
    before = _updated(folder, _experiment({"a": 10_000_000, "b": 20_000_000}))
    text = (folder / "prediction.json").read_bytes()
    monkeypatch.setattr(predict, "_now", lambda: "2999-01-01T00:00:00Z")
    _updated(folder, _experiment({"a": 10_000_000, "b": 20_000_000}))
    assert (folder / "prediction.json").read_bytes() == text
    after = _updated(folder, _experiment({"a": 10_000_000, "b": 5_000_000}))
    assert after.recorded_at == before.recorded_at
    assert after.runs["heavier.a"] == before.runs["heavier.a"]
    assert after.runs["heavier.b"].recorded_at == "2999-01-01T00:00:00Z"
    assert [(c.name, c.expected) for c in after.choices] == [("small", "b")]
