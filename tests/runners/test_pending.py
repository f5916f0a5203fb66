"""What `run` measures, what it leaves to `--full`, and what an interruption costs."""

import json
from importlib import metadata

import pytest

from proofbook.runners.commands import run as running
from proofbook.runners.commands.run import RunRequest
from proofbook.runners.core.measuring import measure
from proofbook.runners.session import pending as dues
from proofbook.runners.session.pending import part_of, pending
from proofbook.runners.session.progress import Progress
from proofbook.runners.system.book import ROOT
from proofbook.runners.traces import files as traces
from proofbook.runners.traces.digest import source_digest
from proofbook.runners.traces.files import read, write

pytestmark = pytest.mark.ranks


@pytest.fixture
def run(folder, launcher):
    """Measure what is due of an experiment; the names of what was measured, and the trace."""

    def measured(name, *, full=False):
        one = pending(name, folder, full=full)
        if one is None:
            return None, None
        trace = measure.measure(one, launcher, Progress())
        return one.measured, trace

    return measured


def test_a_full_run_that_was_measured_is_kept_fresh_by_a_plain_run(run, folder, monkeypatch):
    run("heavier", full=True)
    monkeypatch.setattr(dues, "source_digest", lambda _: "edited")
    one = pending("heavier", folder)
    assert (one.reason, one.measured, one.kept) == ("stale", ("light", "heavy"), {})


def test_an_experiment_that_is_full_as_a_whole_leaves_no_trace_unless_request(run, folder):
    assert run("heaviest") == (None, None)
    assert not (folder / "heaviest.json").exists()
    measured, _ = run("heaviest", full=True)
    assert measured == ("alone",)
    assert run("heaviest") == (None, None)


@pytest.fixture
def interrupted(folder, launcher, monkeypatch):
    """`heavier` was interrupted as soon as its first run, `light`, had ended."""
    whole = measure.measure_run

    def stopped(launcher, experiment, name, *more):
        if name != "light":
            raise KeyboardInterrupt
        return whole(launcher, experiment, name, *more)

    with monkeypatch.context() as patched:
        patched.setattr(measure, "measure_run", stopped)
        with pytest.raises(KeyboardInterrupt):
            measure.measure(pending("heavier", folder, full=True), launcher, Progress())
    return folder


def test_what_was_interrupted_counts_for_the_same_code_and_torch_and_goes_on_where_it_was(
    run, interrupted, monkeypatch
):
    part, both = part_of("heavier", interrupted), ("light", "heavy")
    assert [*interrupted.iterdir()] == [part]
    left = json.loads(part.read_text())
    assert list(left["runs"]) == ["light"]

    def is_thrown_away():
        one = pending("heavier", interrupted, full=True)
        return (one.reason, one.measured) == ("missing", both)

    assert not is_thrown_away()
    forced = pending("heavier", interrupted, full=True, force=True)
    assert (forced.measured, forced.kept) == (both, {})
    for name, other in (("source_digest", "edited"), ("installed", "another")):
        with monkeypatch.context() as changed:
            changed.setattr(dues, name, lambda _, other=other: other)
            assert is_thrown_away()
    whole = part.read_text()
    part.write_text(whole[:100])  # torn
    assert is_thrown_away()
    part.write_text(whole)
    measured, trace = run("heavier", full=True)
    assert measured == ("heavy",)
    assert trace.runs["light"].as_json() == left["runs"]["light"]
    assert sorted(p.name for p in interrupted.iterdir()) == ["heavier.json", "machine.json"]


@pytest.mark.usefixtures("folder")
def test_the_command_tells_what_it_left_to_full():
    ran = running.run(RunRequest(names=("heavier", "heaviest")))
    assert (ran.num_measured, ran.num_fresh, ran.exit_code) == (2, 0, 0)
    assert ran.num_left == 1
    again = running.run(RunRequest(names=("heavier", "heaviest")))
    assert (again.num_measured, again.num_fresh) == (0, 2)


@pytest.fixture
def listed(folder, monkeypatch):
    """The reference machine's trace of the programs that pages list, as one of this machine."""
    committed = read(next(ROOT.glob("content/traces/reference-*/listings.json")))
    under = committed.circumstances.model_copy(update={"torch": metadata.version("torch")})
    code = committed.code.model_copy(update={"digest": source_digest("listings")})
    own = {"machine": folder.name, "circumstances": under, "code": code}
    write(folder / "listings.json", committed.model_copy(update=own))
    now = dict(committed.code.programs)
    for module in (dues, traces):
        monkeypatch.setattr(module, "program_digests", lambda _: now)
    return now


def test_a_changed_program_makes_its_own_runs_stale_and_no_others(folder, listed):
    assert pending("listings", folder) is None
    measured = set(read(folder / "listings.json").runs)  # the newest programs may not be among them
    listed["content/topics/large-models/code/whole_model_right.py"] = "edited"
    one = pending("listings", folder)
    edited = {"whole_model_right", "whole_model_right_unlimited"}
    assert one.reason == "stale"
    assert set(one.measured) & measured == edited
    assert set(one.kept) == measured - edited


def test_a_new_program_makes_nothing_stale(folder, listed):
    trace = read(folder / "listings.json")
    listed["content/topics/ddp/code/new.py"] = "new"
    assert not traces.is_stale(trace)
    one = pending("listings", folder)
    assert (one.reason, set(one.kept)) == ("has new programs", set(trace.runs))


def test_shortened_runs_are_kept_by_a_shortened_run_alone(folder):
    running.run(RunRequest(names=("heavier",), short=True))
    assert read(folder / "heavier.json").shortened
    assert pending("heavier", folder, short=True) is None
    assert pending("heavier", folder).reason == "shortened"


def test_a_trace_holds_no_short_runs_beside_long_ones(folder):
    running.run(RunRequest(names=("heavier",)))
    first, *_ = read(folder / "heavier.json").runs
    request = RunRequest(names=(f"heavier.{first}",), short=True)
    assert not request.pending(folder)[0].kept
    running.run(request)
    assert read(folder / "heavier.json").shortened
    assert request.pending(folder)[0].measured == (first,)
