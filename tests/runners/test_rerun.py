"""`rerun`: what is measured once more, what is kept of it, and the floor that follows."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from runners.traces.reruns import Pair, Rerun, errors, floor, pairs

from runners import __main__ as command
from runners.commands import rerun as rerunning
from runners.commands.rerun import passes_again, rerun
from runners.commands.run import RunRequest
from runners.commands.run import run as run_command
from runners.measuring import measure
from runners.measuring.launch import Launcher
from runners.measuring.not_measured import NotMeasuredError
from runners.measuring.progress import Progress
from runners.measuring.quiet import Reading, Watch
from runners.plans.experiment import find
from runners.system.errors import FixableError
from runners.traces import machine
from runners.traces.files import TraceError, read, read_reruns, write_json
from runners.traces.records import Run

IDLE = Reading(0.01, {"compute": 0.002})
BUSY = Reading(0.4, {"compute": 0.002})


def _quietly() -> Progress:
    return Progress(io.StringIO())


def _watch(taken: Reading = IDLE) -> Watch:
    return Watch(lambda: taken)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: Launcher) -> Path:
    """A folder of this machine in which `heavier` is measured, for the session's ranks."""
    monkeypatch.setattr(machine, "TRACES", tmp_path)
    monkeypatch.setattr(machine, "THIS_MACHINE", tmp_path / "this-machine")
    for module in ("runners.commands.run", "runners.commands.rerun"):
        monkeypatch.setattr(f"{module}.Launcher", lambda _: launcher)
    monkeypatch.setattr(Launcher, "__exit__", lambda *_: None)
    machine.describe.cache_clear()
    run_command(RunRequest(names=("heavier",), full=True), _watch())
    return measure.folder()


# --- the floor, against closed forms


def test_the_error_is_that_of_predicting_the_rerun_from_its_predecessor() -> None:
    assert Pair(first=3.0, second=2.0).error == 0.5
    assert Pair(first=1.0, second=2.0).error == -0.5


def test_the_floor_is_the_median_of_absolute_errors_and_the_share_that_is_near() -> None:
    found = floor([0.02, -0.1, 0.3, -0.5])
    assert found is not None
    assert found.median_error == pytest.approx(0.2)
    assert (found.num_pairs, found.num_near, found.near_share) == (4, 2, 0.5)
    assert floor([]) is None


def test_a_quantity_that_was_not_measured_twice_has_no_error() -> None:
    both = Rerun(status="completed", step_seconds=Pair(first=1, second=1), peak_bytes=None)
    assert errors({"a.b": both}, "step_seconds") == {"a.b": 0.0}
    assert errors({"a.b": both}, "peak_bytes") == {}


def test_reruns_of_another_machine_s_schema_are_refused_with_the_field(tmp_path: Path) -> None:
    document = {"schema_version": 1, "machine": "here", "experiments": {"a": {"runs": 3}}}
    write_json(tmp_path / "reruns.json", document)
    with pytest.raises(
        TraceError, match=r"reruns.json:\d+: experiments.a.first_at: field required"
    ):
        read_reruns(tmp_path)


# --- which passes


def _run(**changed: object) -> Run:
    path = next((machine.ROOT / "content" / "traces").glob("reference-*/ddp.json"))
    return read(path).runs["single"].model_copy(update=changed)


def test_timed_passes_are_repeated_and_metered_ones_of_short_runs() -> None:
    run = _run()
    plan = find("ddp").runs["single"]
    short, long = (
        run.timing.model_copy(update={"wall_seconds": seconds}) for seconds in (5.0, 5.1)
    )
    assert passes_again(_run(timing=short), plan) == ("timed", "metered")
    assert passes_again(_run(timing=long), plan) == ("timed",)


@pytest.mark.parametrize(
    "changed", [{"nature": "paced"}, {"nature": "simulated"}, {"status": "out_of_memory"}]
)
def test_only_real_runs_that_completed_are_repeated(changed: dict[str, str]) -> None:
    assert passes_again(_run(**changed), find("ddp").runs["single"]) == ()


# --- the command


@pytest.mark.ranks
def test_a_rerun_keeps_both_medians_and_leaves_the_trace_alone(folder: Path) -> None:
    before = (folder / "heavier.json").read_bytes()
    done = rerun(["heavier"], _quietly(), watch=_watch())
    assert (done.num_measured, done.num_kept, done.stale, done.not_measured) == (2, 0, [], [])
    assert (folder / "heavier.json").read_bytes() == before
    reruns, trace = read_reruns(folder), read(folder / "heavier.json")
    assert reruns is not None
    kept = reruns.experiments["heavier"]
    assert kept.is_of(trace)
    assert kept.quiet is not None
    assert kept.quiet.is_quiet
    for name, one in kept.runs.items():
        step = trace.runs[name].timing.step
        assert step is not None
        assert one.step_seconds is not None
        assert one.step_seconds.first == step.median_seconds
        assert one.peak_bytes is None
    assert set(pairs(reruns, {"heavier": trace})) == {"heavier.light", "heavier.heavy"}
    again = rerun(["heavier"], _quietly(), watch=_watch())
    assert (again.num_measured, again.num_kept) == (0, 2)


@pytest.mark.ranks
def test_pairs_of_a_trace_that_was_measured_anew_no_longer_count(folder: Path) -> None:
    rerun(["heavier"], _quietly(), watch=_watch())
    later = read(folder / "heavier.json").model_copy(update={"recorded_at": "2999-01-01T00:00:00Z"})
    write_json(folder / "heavier.json", later.model_dump(mode="json"))
    assert pairs(read_reruns(folder), {"heavier": later}) == {}
    done = rerun(["heavier"], _quietly(), watch=_watch())
    assert (done.num_measured, done.num_kept) == (2, 0)
    assert set(pairs(read_reruns(folder), {"heavier": later})) == {"heavier.light", "heavier.heavy"}


@pytest.mark.ranks
def test_an_interruption_costs_one_run_and_the_next_call_measures_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: Callable[..., Run] = measure.measure_run

    def stopped(launcher: Launcher, experiment: object, name: str, *more: object) -> Run:
        if name == "heavy":
            raise KeyboardInterrupt
        return whole(launcher, experiment, name, *more)

    with monkeypatch.context() as patched:
        patched.setattr(measure, "measure_run", stopped)
        with pytest.raises(KeyboardInterrupt):
            rerun(["heavier"], _quietly(), watch=_watch())
    half = read_reruns(folder)
    assert half is not None
    assert set(half.experiments["heavier"].runs) == {"light"}
    assert half.experiments["heavier"].quiet is None
    done = rerun(["heavier"], _quietly(), watch=_watch())
    assert (done.num_measured, done.num_kept) == (1, 1)
    rest = read_reruns(folder)
    assert rest is not None
    assert rest.experiments["heavier"].runs["light"] == half.experiments["heavier"].runs["light"]
    assert rest.experiments["heavier"].quiet is None  # the first half has no record


@pytest.mark.ranks
def test_pairs_of_a_busy_machine_do_not_count_and_are_measured_again(folder: Path) -> None:
    done = rerun(["heavier"], _quietly(), watch=_watch(BUSY))
    (line,) = done.not_quiet
    assert line.startswith("heavier: other processes used 40% of the cores")
    reruns = read_reruns(folder)
    assert reruns is not None
    quiet = reruns.experiments["heavier"].quiet
    assert quiet is not None
    assert not quiet.is_quiet
    trace = read(folder / "heavier.json")
    assert pairs(reruns, {"heavier": trace}) == {}
    done = rerun(["heavier"], _quietly(), watch=_watch())
    assert (done.num_measured, done.num_kept, done.not_quiet) == (2, 0, [])
    assert len(pairs(read_reruns(folder), {"heavier": trace})) == 2


@pytest.mark.ranks
def test_a_run_that_could_not_be_measured_is_told_and_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(*_: object) -> Run:
        raise NotMeasuredError("no file handles left")

    with monkeypatch.context() as patched:
        patched.setattr(measure, "measure_run", lacking)
        done = rerun(["heavier"], _quietly(), watch=_watch())
    assert done.not_measured == [
        "heavier.light: no file handles left",
        "heavier.heavy: no file handles left",
    ]
    assert read_reruns(folder) is None
    assert rerun(["heavier"], _quietly(), watch=_watch()).num_measured == 2


@pytest.mark.ranks
def test_stale_traces_are_left_out_with_the_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rerunning, "staleness", lambda _: "stale")
    done = rerun(["heavier"], _quietly(), watch=_watch())
    assert (done.num_measured, done.stale) == (0, ["heavier: stale"])


def test_without_a_first_measurement_there_is_nothing_to_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "TRACES", tmp_path)
    monkeypatch.setattr(machine, "THIS_MACHINE", tmp_path / "this-machine")
    machine.describe.cache_clear()
    with pytest.raises(FixableError, match="python -m runners run"):
        rerun(["ddp"], _quietly(), watch=_watch())
    assert command.main(["rerun", "ddp"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("python -m runners: this machine has no measurement to repeat")
