"""`python -m runners try`: what may be set, what is refused, what it prints and keeps."""

import re
from dataclasses import replace

import pytest

from proofbook.runners.__main__ import main
from proofbook.runners.commands import try_run
from proofbook.runners.commands.try_run import further, prepare
from proofbook.runners.core.declared.experiment import find, names
from proofbook.runners.core.measuring import measure
from proofbook.runners.core.trace import machine
from proofbook.runners.session.progress import Progress
from proofbook.runners.system import book
from proofbook.runners.system.errors import FixableError
from proofbook.runners.traces import digest
from proofbook.runners.traces.files import read
from proofbook.runners.traces.summary import seconds_in_words, summary_lines
from tests.processes import OWN_EXPERIMENTS, ROOT


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


BOOK = names()


@pytest.fixture
def changeable(monkeypatch):
    monkeypatch.setenv(book.MORE, OWN_EXPERIMENTS[book.MORE])
    return find("changeable")


def refusal(experiment, run, *wanted):
    """The one line that says why there is no such try."""
    with pytest.raises(FixableError) as caught:
        prepare(experiment, run, wanted)
    said = str(caught.value)
    assert "\n" not in said
    return said


def test_what_follows_from_a_setting_is_worked_out_and_said(changeable):
    declaration, lines = prepare(changeable, "shared", ["num_samples=20", "num_epochs=3"])
    assert declaration.settings.num_samples_per_rank == 10
    assert lines == [
        "num_samples 20 instead of 12",
        "num_samples_per_rank 10 instead of 6, which follows",
    ]
    assert prepare(changeable, "shared", [])[1] == ["num_epochs 2 instead of 3, to take seconds"]


@pytest.mark.parametrize(
    ("run", "wanted", "said"),
    [
        (
            "share",
            "",
            r"no run of changeable 'share' \(did you mean shared\?\); there are: shared,",
        ),
        (
            "shared",
            "num_sample=3",
            r"no setting of changeable.shared 'num_sample' .*did you mean num_samples\?\); there",
        ),
        ("shared", "num_samples", "write --set KEY=VALUE, not 'num_samples'"),
        ("shared", "num_samples=0", "num_samples must be greater than or equal to 1, not 0"),
        ("shared", "num_samples=13", "settings: num_samples 13 cannot be shared by 2 ranks"),
        ("shared", "num_samples_per_rank=5", "follows from the other settings and would be 6; set"),
        ("shared", "world_size=1", "world_size of shared must be 2 to 8, not 1"),
        ("shared", "world_size=99", "world_size of shared must be 2 to 8, not 99"),
        ("shared", "seed=true", "seed must be whole numbers, not below 0"),
        ("alone", "world_size=2", "world_size of alone must be 1 to 1, not 2"),
        ("free", "budget_bytes=5", "no setting of changeable.free 'budget_bytes'"),
    ],
)
def test_what_cannot_be_tried_is_one_line_that_says_what_to_set(changeable, run, wanted, said):
    assert re.search(said, refusal(changeable, run, *([wanted] if wanted else [])))


# --- the book's own experiments


def test_settings_from_which_nothing_follows_are_refused_too():
    assert "no run can have these settings" in refusal(find("sharding"), "ddp_1", "widths=5")


def test_other_ranks_have_one_stage_each_too():
    declaration, _ = prepare(find("model_parallel"), "full", ["world_size=2"])
    assert declaration.settings.num_stages == 2


@pytest.mark.parametrize("name", BOOK)
def test_a_setting_is_read_by_the_code_of_the_run_or_setting_it_is_refused(name):
    """And what shortens a try names runs and settings that there are."""
    experiment = find(name)
    files = digest.covered_files(experiment.path)
    rooms = ("closed_forms", "experiments", "training")
    code = "\n".join(path.read_text() for path in files if path.parent.name in rooms)
    code += (book.ROOT / "runners" / "core" / "declared" / "experiment.py").read_text()
    assert experiment.tried_with.keys() <= {"*", *experiment.runs}
    for run, declaration in experiment.runs.items():
        assert set(experiment.shortened(run)) <= set(declaration.settings.declared())
        for key, value in declaration.settings.as_json().items():
            is_read = rf"\b(?:settings|self)(?:\.|, \"){key}\b"
            if not re.search(is_read, code):
                assert refusal(experiment, run, f"{key}={_other(value)}")


def _other(value):
    if isinstance(value, int | float):
        return str(value * 2 + 2)
    if isinstance(value, list):
        return ",".join(str(part * 2 + 2) for part in value)
    return f"{value}_other"


def test_a_refusal_says_where_and_for_how_much():
    frozen = read(ROOT / "tests/book/content/traces/reference-frozen/tiny_memory.json")
    assert summary_lines(frozen.runs["whole_budget"]) == [
        "ended: out of memory in backward on rank 0, asking for 40,000 bytes"
    ]


def test_seconds_of_a_clock_that_is_behind_are_told_below_0():
    assert seconds_in_words(-2.049e-05) == "−20.5 µs"
