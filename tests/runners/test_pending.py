"""What `run` measures, leaves out and says beforehand, and what an interruption costs."""

import json
from importlib import metadata

import pytest

from proofbook.runners.commands import run as running
from proofbook.runners.commands.run import RunRequest
from proofbook.runners.core.measuring import measure, quiet
from proofbook.runners.core.measuring.quiet import Readings
from proofbook.runners.core.trace import machine
from proofbook.runners.session import pending as dues
from proofbook.runners.session.pending import part_of, pending
from proofbook.runners.session.progress import Progress
from proofbook.runners.system.book import ROOT
from proofbook.runners.system.errors import FixableError
from proofbook.runners.traces import files as traces
from proofbook.runners.traces.digest import source_digest
from proofbook.runners.traces.files import read, write
from tests import recorded


@pytest.fixture
def run(folder, launcher):

    def measured(name, *, full=False):
        one = pending(name, folder, full=full)
        return one.measured, measure.measure(one, launcher, Progress())

    return measured


def test_a_full_run_that_was_measured_is_kept_fresh_by_a_plain_run(run, folder, monkeypatch):
    assert pending("heaviest", folder) is None  # full as a whole
    assert run("heaviest", full=True)[0] == ("alone",)
    run("heavier", full=True)
    monkeypatch.setattr(dues, "source_digest", lambda _: "edited")
    one = pending("heavier", folder)
    assert (one.reason, one.measured, one.kept) == ("stale", ("light", "heavy"), {})


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


def test_a_changed_program_makes_its_own_runs_stale_and_a_new_one_makes_none(folder, listed):
    assert pending("listings", folder) is None
    trace = read(folder / "listings.json")
    measured = set(trace.runs)  # the newest programs may not be among them
    listed["content/topics/ddp/code/new.py"] = "new"
    assert not traces.is_stale(trace)
    one = pending("listings", folder)
    assert (one.reason, set(one.kept)) == ("has new programs", measured)
    listed["content/topics/large-models/code/whole_model_right.py"] = "edited"
    one = pending("listings", folder)
    edited = {"whole_model_right", "whole_model_right_unlimited"}
    assert one.reason == "stale"
    assert set(one.measured) & measured == edited
    assert set(one.kept) == measured - edited


def test_a_trace_holds_no_short_runs_beside_long_ones(folder):
    running.run(RunRequest(names=("heavier",)))
    first, *_ = read(folder / "heavier.json").runs
    request = RunRequest(names=(f"heavier.{first}",), short=True)
    assert not request.pending(folder)[0].kept
    running.run(request)
    assert read(folder / "heavier.json").shortened
    assert request.pending(folder)[0].measured == (first,)
    assert pending("heavier", folder, short=True) is None
    assert pending("heavier", folder).reason == "shortened"


def _trace(root, folder, name, seconds):
    """A committed trace under another name, whose every run took so long."""
    folder.mkdir(parents=True, exist_ok=True)
    path = next((root / "content" / "traces").glob("reference-*/batch_split.json"))
    document = json.loads(path.read_text())
    run = document["runs"]["single"]
    run["timing"]["wall_seconds"] = seconds
    run["ranks"][0]["memory"]["peak_bytes"] = 5 << 20
    recorded.as_recorded(run)
    document |= {"experiment": name, "runs": {"light": run}, "machine": folder.name}
    recorded.write(folder / f"{name}.json", document)


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


def test_a_run_that_is_named_is_measured_anew_and_no_other_is_lost(folder, monkeypatch):
    for name in ("heavier.heavy", "heavier.light"):
        ran = running.run(RunRequest(names=(name,)))
        assert (ran.num_measured, ran.num_left) == (1, 0)
    (one,) = RunRequest(names=("heavier.light",)).pending(folder)
    assert (one.measured, [*one.kept]) == (("light",), ["heavy"])
    monkeypatch.setattr(dues, "source_digest", lambda _: "other code")
    with pytest.raises(FixableError, match="1 other runs of heavier are stale"):
        RunRequest(names=("heavier.light",)).pending(folder)


STEADY = 1e-3
IDLE, BUSY, SLOWER = (0.01, STEADY), (0.4, STEADY), (0.01, 1.1e-3)


@pytest.fixture
def injected(monkeypatch):
    """A function that sets the next readings of the machine."""
    return lambda *given: monkeypatch.setattr(quiet, "reading", iter(given).__next__)


@pytest.mark.parametrize(
    ("before", "after", "was_busy", "was_quiet"),
    [
        (IDLE, IDLE, False, True),
        ((None, STEADY), (None, STEADY), False, True),
        (BUSY, IDLE, True, False),
        (IDLE, BUSY, True, False),
        (IDLE, SLOWER, False, False),
        (IDLE, (0.0, 1.04e-3), False, True),
    ],
)
def test_an_experiment_is_quiet_without_load_and_with_equal_canaries(
    before, after, was_busy, was_quiet, injected
):
    injected(before, after)
    readings = Readings()
    readings.begin()
    found = readings.end()
    assert (found.was_busy, found.was_quiet) == (was_busy, was_quiet)


def test_load_is_the_share_of_ticks_that_were_not_idle(tmp_path, monkeypatch):
    stat = tmp_path / "stat"
    #                user nice system idle iowait irq softirq steal
    stat.write_text("cpu  100 0 50 800 20 0 0 10 0 0\n")
    later = "cpu  120 0 55 860 30 0 0 15 0 0\n"
    monkeypatch.setattr(quiet.time, "sleep", lambda _: stat.write_text(later))
    assert quiet.load(1.0, stat) == pytest.approx(0.3)
    assert quiet.load(1.0, tmp_path / "nowhere") is None


def test_a_run_records_how_quiet_it_was_and_says_so(folder, injected):
    request = RunRequest(names=("heavier",), full=True)
    injected(IDLE, SLOWER)
    ran = running.run(request)
    assert ran.exit_code == 0
    assert ran.not_quiet == ["heavier"]
    assert read(folder / "heavier.json").quiet.load_after_share == IDLE[0]
    injected()  # what is fresh takes no reading
    ran = running.run(request)
    assert (ran.num_fresh, ran.not_quiet) == (1, [])


@pytest.mark.parametrize(
    ("field", "other"), [("cpu", "another"), ("caches", "48K Data"), ("num_cores", 3)]
)
def test_a_reference_is_of_one_machine_and_of_all_its_instructions(
    field, other, folder, monkeypatch
):
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    where = measure.folder(as_reference=True)
    described = machine.describe(where.name)
    write(where / "machine.json", described.model_copy(update={field: other}))
    with pytest.raises(FixableError, match=f"measured where {field} is {other}"):
        running.run(RunRequest(names=("heavier",), as_reference=True))
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    with pytest.raises(FixableError, match="ATEN_CPU_CAPABILITY is set"):
        running.run(RunRequest(names=("heavier",), as_reference=True))
    assert [one.name for one in where.iterdir()] == ["machine.json"]
