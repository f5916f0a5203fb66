"""What `run --dry` says: from the last trace here, else the reference's."""

import json

import pytest

from proofbook.runners.commands import run as running
from proofbook.runners.commands.run import RunRequest
from proofbook.runners.session import pending
from proofbook.runners.system.errors import FixableError
from proofbook.runners.traces.files import read
from tests.recorded import as_recorded, write


def _trace(root, folder, name, seconds):
    """A committed trace under another name, whose every run took so long."""
    folder.mkdir(parents=True, exist_ok=True)
    path = next((root / "content" / "traces").glob("reference-*/batch_split.json"))
    document = json.loads(path.read_text())
    run = document["runs"]["single"]
    run["timing"]["wall_seconds"] = seconds
    run["ranks"][0]["memory"]["peak_bytes"] = 5 << 20
    as_recorded(run)
    document |= {"experiment": name, "runs": {"light": run}, "machine": folder.name}
    write(folder / f"{name}.json", document)


def test_a_dry_run_says_a_line_an_experiment_and_one_for_all_and_starts_nothing(
    root, folder, tmp_path, monkeypatch
):
    """The last trace here tells, though it is stale; torch is loaded, and the machine read once."""
    monkeypatch.setattr(running, "Launcher", None)
    _trace(root, tmp_path / "reference-other", "heavier", 100.0)
    _trace(root, folder, "heavier", 7.0)
    first, whole = running.estimates(RunRequest(names=("heavier",)).pending(folder), folder)
    assert first.split()[:7] == ["heavier", "1", "runs", "7.5", "s", "5", "MiB"]
    assert whole.split()[:6] == ["in", "all", "1", "runs", "11.5", "s"]
    assert [p.name for p in folder.iterdir()] == ["heavier.json"]


def test_a_reference_trains_twice_more_for_its_spread(root):
    trace = read(next((root / "content" / "traces").glob("reference-*/batch_split.json")))
    run = trace.runs["single"]
    assert run.spread is not None
    assert run.passes == ["timed", "metered"]
    once, again = (running._seconds([run], as_reference) for as_reference in (False, True))
    assert again - once == pytest.approx(2 * run.timing.wall_seconds / 2)


# --- one run of an experiment


def test_of_an_experiment_of_programs_one_is_measured_and_the_others_wait_for_full(folder):
    (one,) = RunRequest(names=("listings.summed_right",)).pending(folder)
    assert one.measured == ("summed_right",)
    assert {*one.measured, *one.left_out} == {*one.experiment.runs}


@pytest.mark.ranks
def test_a_run_that_is_named_is_measured_anew_and_no_other_is_lost(folder, monkeypatch):
    for name in ("heavier.heavy", "heavier.light"):
        ran = running.run(RunRequest(names=(name,)))
        assert (ran.num_measured, ran.num_left) == (1, 0)
    (one,) = RunRequest(names=("heavier.light",)).pending(folder)
    assert (one.measured, [*one.kept]) == (("light",), ["heavy"])
    monkeypatch.setattr(pending, "source_digest", lambda _: "other code")
    with pytest.raises(FixableError, match="1 other runs of heavier are stale"):
        RunRequest(names=("heavier.light",)).pending(folder)
