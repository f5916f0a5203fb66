"""`python -m runners try`, as a reader calls it: what it prints, keeps, and leaves behind."""

from dataclasses import replace

import pytest

from proofbook.runners.__main__ import main
from proofbook.runners.commands import try_run
from proofbook.runners.commands.try_run import further, prepare
from proofbook.runners.core.declared.experiment import find
from proofbook.runners.core.measuring import measure
from proofbook.runners.core.trace import machine
from proofbook.runners.session.progress import Progress
from proofbook.runners.traces.files import read
from proofbook.runners.traces.summary import summary_lines

pytestmark = pytest.mark.ranks


@pytest.mark.usefixtures("folder")
def test_a_try_prints_what_it_measured_and_keeps_just_that(launcher, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(try_run, "Launcher", lambda _: launcher)
    monkeypatch.setattr(try_run, "TRIES", tmp_path / "tries")
    monkeypatch.setattr(launcher, "most_bytes", None)  # what a try sets goes with the test
    assert main(["try", "--set", "num_samples=20", "word=rows", "changeable.shared"]) == 0
    (kept,) = tmp_path.glob("*/*.json")  # no trace of the book is written
    assert kept.parent.name == "tries"
    trace = read(kept)
    run = trace.runs["shared"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"asked: {trace.question}"
    assert lines[2:-1] == summary_lines(run)
    assert "num_samples 20 instead of 12; " in lines[0]
    assert "num_epochs 2 instead of 3, to take seconds" in lines[0]
    assert run.printed == ["rows of 10 each: 20"] * 2
    assert [e.loss for e in run.epochs] == [10.0, 10.0]
    assert run.passes == ["timed", "metered"]
    assert (run.settings["num_samples"], run.settings["num_samples_per_rank"]) == (20, 10)


@pytest.fixture
def attempt(launcher, monkeypatch):
    """Measure a run of the tests' own experiment with one setting changed."""
    monkeypatch.setattr(launcher, "most_bytes", None)  # what a try sets goes with the test

    def measured(run, wanted):
        experiment = find("changeable")
        declaration, _ = prepare(experiment, run, [wanted])
        tried = replace(experiment, runs={run: declaration})
        trace = measure.measure_alone(tried, run, launcher, Progress())
        return trace.runs[run]

    return measured


def test_a_try_that_the_budget_refuses_is_a_result(attempt):
    run = attempt("alone", "num_samples=200")
    assert run.status == "out_of_memory"
    assert run.budget_bytes == 48 << 20
    assert run.error.requested_bytes == 200 << 20


@pytest.mark.skipif(machine.available_bytes() is None, reason="the kernel must say what is free")
def test_a_try_too_large_for_the_machine_is_refused_like_one_too_large_for_its_budget(attempt):
    run = attempt("free", f"num_samples={1 << 26}")
    assert run.status == "out_of_memory"
    assert run.budget_bytes is None


def test_a_try_prints_losses_of_steps_and_times_beside_them(run):
    diverged = run("mishaps", "diverges")
    (losses,) = further(diverged)
    assert losses.startswith(f"loss in steps 1, 2, 3, 5, 6: {diverged.step_losses[0]:.4f}, ")
    assert losses.endswith(", none")
    assert "known: median 39.8 s of 134 measurements" in "\n".join(further(run("known", "step")))


def test_a_try_of_no_run_is_one_line(capsys):
    assert main(["try"]) == 2
    line = capsys.readouterr().err
    assert line.startswith("python -m runners: name a run as EXPERIMENT.RUN")
    assert line.count("\n") == 1
