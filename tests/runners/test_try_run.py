"""What a reader may set of a run, and how a wrong setting is refused before anything starts."""

import re

import pytest

from proofbook.runners.commands.try_run import prepare
from proofbook.runners.core.declared.experiment import find, names
from proofbook.runners.system import book
from proofbook.runners.system.errors import FixableError
from proofbook.runners.traces import digest
from tests.processes import OWN_EXPERIMENTS

BOOK = names()


@pytest.fixture
def changeable(monkeypatch):
    """The tests' own experiment, whose settings depend on each other."""
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


def test_a_try_is_shortened_unless_the_reader_says_how_long(changeable):
    assert prepare(changeable, "shared", [])[1] == ["num_epochs 2 instead of 3, to take seconds"]
    assert prepare(changeable, "shared", ["num_epochs=3"])[1] == []


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
def test_no_setting_can_be_changed_without_effect(name):
    """A setting is read by the code of the run, or setting it is refused."""
    experiment = find(name)
    files = digest.covered_files(experiment.path)
    rooms = ("closed_forms", "experiments", "training")
    code = "\n".join(path.read_text() for path in files if path.parent.name in rooms)
    code += (book.ROOT / "runners" / "core" / "declared" / "experiment.py").read_text()
    for run, declaration in experiment.runs.items():
        for key, value in declaration.settings.as_json().items():
            is_read = rf"\b(?:settings|self)(?:\.|, \"){key}\b"
            if not re.search(is_read, code):
                assert refusal(experiment, run, f"{key}={_other(value)}")


def _other(value):
    """A value of the same type that is another."""
    if isinstance(value, int | float):
        return str(value * 2 + 2)
    if isinstance(value, list):
        return ",".join(str(part * 2 + 2) for part in value)
    return f"{value}_other"


@pytest.mark.parametrize("name", BOOK)
def test_what_shortens_a_try_names_runs_and_settings_that_there_are(name):
    experiment = find(name)
    assert experiment.tried_with.keys() <= {"*", *experiment.runs}
    for run in experiment.runs:
        assert set(experiment.shortened(run)) <= set(experiment.runs[run].settings.declared())
