"""A trace that contradicts itself is refused, with file, line and field; no measured one is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runners.traces.files import NOT_TRACES, TraceError, read
from runners.traces.invariants import violations
from runners.traces.lines import line_of
from runners.traces.records import Trace

REFERENCE = Path("content/traces/reference-cpu-2c")
Change = Callable[[dict[str, Any]], Any]


def _document(root: Path, experiment: str) -> dict[str, Any]:
    text = (root / REFERENCE / f"{experiment}.json").read_text()
    document: dict[str, Any] = json.loads(text)
    return document


def _refusal(root: Path, folder: Path, path: str, change: Change) -> str:
    """What is said of a real trace with one of its runs changed."""
    experiment, _, run = path.partition(".")
    document = _document(root, experiment)
    change(document["runs"][run])
    file = folder / f"{experiment}.json"
    file.write_text(json.dumps(document, indent=1, sort_keys=True))
    with pytest.raises(TraceError) as refused:
        read(file)
    said = str(refused.value)
    assert said.startswith(f"{file}:")
    line = int(said.removeprefix(f"{file}:").partition(":")[0])
    assert 1 < line <= len(file.read_text().splitlines())
    return said.partition(": ")[2]


def _set(*path: str | int, to: Any) -> Change:
    """Put a value at a path of a run, or what a function makes of the value there."""

    def change(run: dict[str, Any]) -> None:
        *above, last = path
        holder: Any = run
        for step in above:
            holder = holder[step]
        holder[last] = to(holder[last]) if callable(to) else to

    return change


def test_no_measured_trace_breaks_an_invariant(root: Path) -> None:
    frozen = root / "tests" / "book" / "content" / "traces" / "reference-frozen"
    files = [*(root / REFERENCE).glob("*.json"), *frozen.glob("*.json")]
    traces = [path for path in files if path.stem not in NOT_TRACES]
    assert traces
    assert {p.stem: list(violations(read(p))) for p in traces if list(violations(read(p)))} == {}


DDP, STEP = "ddp.ddp", ("timing", "step")
FIRST_MEMORY = ("ranks", 0, "memory")
REFUSED: dict[str, tuple[str, Change, str]] = {
    "median": (DDP, _set(*STEP, "median_seconds", to=0.5), "timing.step.median_seconds: is 0.5"),
    "first quartile": (
        DDP,
        _set(*STEP, "first_quartile_seconds", to=0.0),
        "timing.step.first_quartile_seconds: is 0.0",
    ),
    "third quartile": (
        DDP,
        _set(*STEP, "third_quartile_seconds", to=9.5),
        "timing.step.third_quartile_seconds: is 9.5",
    ),
    "number of samples": (
        DDP,
        _set(*STEP, "num_samples", to=7),
        "timing.step.num_samples: is 7, and there are",
    ),
    "samples of an experiment's own time": (
        "communication.ranks_2",
        lambda run: next(iter(run["timing"]["measures"].values())).update(median_seconds=5.0),
        "median_seconds: is 5.0",
    ),
    "a rank twice": (DDP, _set("ranks", 1, "rank", to=0), "ranks: has the ranks [0, 0, 2, 3]"),
    "a rank too few": (DDP, lambda run: run["ranks"].pop(), "and world_size is 4"),
    "more ranks than there are": (DDP, _set("world_size", to=10**12), "ranks: has the ranks"),
    "a skipped run with ranks": (
        DDP,
        lambda run: run.update(status="skipped", reason="not measured"),
        "ranks: a skipped run has recorded nothing",
    ),
    "a skipped run without a reason": (
        DDP,
        _set("status", to="skipped"),
        "reason: a skipped run says why",
    ),
    "negative bytes": (
        DDP,
        _set(*FIRST_MEMORY, "kernel_peak_bytes", to=-1),
        "ranks.0.memory.kernel_peak_bytes: -1 is negative",
    ),
    "negative bytes of a phase": (
        DDP,
        lambda run: run["ranks"][0]["memory"]["phases"].update(lost=-8),
        "ranks.0.memory.phases.lost: -8 is negative",
    ),
    "a negative count": (
        DDP,
        _set("ranks", 0, "collectives", 0, "count", to=-2),
        "ranks.0.collectives.0.count: -2 is negative",
    ),
    "negative seconds": (
        DDP,
        _set("timing", "wall_seconds", to=-0.1),
        "timing.wall_seconds: -0.1 is negative",
    ),
    "a negative time of a stage": (
        DDP,
        lambda run: run["timing"]["stages"].update(wrap=-0.1),
        "timing.stages.wrap: -0.1 is negative",
    ),
    "a negative sample": (
        DDP,
        _set(*STEP, "samples", 0, to=-0.1),
        "timing.step.samples.0: -0.1 is negative",
    ),
    "an accuracy above one": (
        DDP,
        _set("epochs", 0, "accuracy", to=1.2),
        "epochs.0.accuracy: 1.2 is not a share between 0 and 1",
    ),
    "a share above one": (
        DDP,
        _set("timing", "ranks", 0, "waiting_share", to=55.0),
        "timing.ranks.0.waiting_share: 55.0 is not a share between 0 and 1",
    ),
    "classes that miss the peak": (
        DDP,
        _set(*FIRST_MEMORY, "at_peak", "gradients_bytes", to=lambda n: n + 4),
        "ranks.0.memory.at_peak: sums to",
    ),
    "a peak beside its classes": (
        DDP,
        _set(*FIRST_MEMORY, "peak_bytes", to=lambda n: n * 2),
        "ranks.0.memory.at_peak: sums to",
    ),
    "a class above its maximum": (
        DDP,
        _set(*FIRST_MEMORY, "largest", to=lambda classes: dict.fromkeys(classes, 0)),
        "_bytes: is 0, not between",
    ),
    "a phase above the peak": (
        DDP,
        lambda run: run["ranks"][0]["memory"]["phases"].update(lost=10**9),
        "ranks.0.memory.phases: the largest is 1000000000",
    ),
    "another phase at the peak": (
        DDP,
        _set(*FIRST_MEMORY, "peak_phase", to="dinner"),
        "ranks.0.memory.peak_phase: 'dinner' is not the phase",
    ),
    "a peak without classes": (
        DDP,
        _set(*FIRST_MEMORY, "at_peak", to=None),
        "ranks.0.memory.peak_bytes: is known without its classes",
    ),
    "a completed run with a failed rank": (
        DDP,
        _set("ranks", 2, "status", to="failed"),
        "ranks.2.status: failed, in a run that has completed",
    ),
    "a failed run of completed ranks": (
        DDP,
        _set("status", to="out_of_memory"),
        "error: a run that ended out_of_memory has an error",
    ),
    "a completed run that ran out of memory": (
        "large_batch.single_budget",
        lambda run: run.update(status="completed", expected_status="completed"),
        "error: a run that has completed has no error",
    ),
    "a diverged run whose values stayed finite": (
        DDP,
        _set("status", to="diverged"),
        "non_finite: a run has diverged exactly where a value was not finite",
    ),
    "an error of another kind": (
        "large_batch.single_budget",
        _set("error", "kind", to="peer_lost"),
        "status: out_of_memory, which no rank has that failed by peer_lost",
    ),
    "an error of a rank that is none": (
        "large_batch.single_budget",
        _set("error", "rank", to=9),
        "error.rank: there is no rank 9",
    ),
    "an error that its rank has not recorded": (
        "large_batch.single_budget",
        _set("error", "requested_bytes", to=1),
        "error: is not the failure that rank 0 has recorded",
    ),
    "a failure of another rank": (
        "hangs.lengths_differ",
        lambda run: next(r for r in run["ranks"] if r["failure"])["failure"].update(rank=7),
        "failure.rank: is of rank 7",
    ),
    "a failed rank without a failure": (
        "hangs.lengths_differ",
        lambda run: next(r for r in run["ranks"] if r["failure"]).update(failure=None),
        "failure: does not agree with the status",
    ),
    "bytes of a stage beside its shape": (
        DDP,
        _set("stages", 0, "bytes", to=4),
        "stages.0.bytes: is 4, and the shape",
    ),
    "a shape of a stage beside its bytes": (
        DDP,
        _set("stages", 0, "shape_out", to=[64]),
        "stages.0.bytes: is",
    ),
    "a rank that held something else than it shows": (
        "model_parallel.full",
        lambda run: _held(run).update(shape_in=[1, 2, 3]),
        "differs from the stage itself",
    ),
    "a move from a rank that is none": (
        "model_parallel.full",
        lambda run: next(m for s in run["stages"] for m in s.get("moves", [])).update(source=12),
        "there is no rank 12",
    ),
    "a stage that is timed and not there": (
        DDP,
        lambda run: run["timing"]["stages"].update(lunch=0.1),
        "timing.stages: times a stage that the run has not",
    ),
    "a model that is not its layers": (
        DDP,
        _set("model", "num_parameters", to=lambda n: n + 1),
        "model.num_parameters: is",
    ),
    "a dtype of other bytes": (
        DDP,
        _set("model", "dtype", to="float64"),
        "model.bytes: is",
    ),
    "epochs out of order": (
        DDP,
        _set("epochs", 0, "epoch", to=5),
        "epochs: are numbered [5,",
    ),
    "an epoch of a rank that is none": (
        DDP,
        _set("epochs", 0, "ranks", 0, "rank", to=5),
        "epochs.0.ranks: [5, 1, 2, 3] are not ranks of 4",
    ),
    "transfers that miss the bytes": (
        "model_parallel.full",
        lambda run: _transfer(run).update(bytes=1),
        "the bytes of all sum to",
    ),
    "transfers that miss the count": (
        "model_parallel.full",
        lambda run: _transfer(run).update(count=99),
        "the count of all sum to",
    ),
    "a transfer to a rank that is none": (
        "model_parallel.full",
        lambda run: _transfer(run).update(destination=8),
        "there is no rank 8",
    ),
    "a clock twice": (
        DDP,
        _set("timing", "clocks", 1, "rank", to=0),
        "timing.clocks: are of the ranks [0, 0, 2, 3]",
    ),
    "a clock that is off itself": (
        DDP,
        _set("timing", "clocks", 0, "offset_seconds", to=1e-6),
        "timing.clocks.0: is rank 0's clock",
    ),
    "a span that ends before it begins": (
        DDP,
        _set("timing", "timeline", 1, "end_seconds", to=0.0),
        "timing.timeline.1.end_seconds: lies before the start",
    ),
    "a gap between spans": (
        DDP,
        _set("timing", "timeline", 1, "start_seconds", to=lambda s: s + 1e-5),
        "timing.timeline.1.start_seconds: does not begin where",
    ),
    "a span beyond the step": (
        DDP,
        _set("timing", "timeline", -1, "end_seconds", to=9.0),
        "does not end with the step",
    ),
    "times that miss the step": (
        DDP,
        _set("timing", "ranks", 0, "compute_seconds", to=lambda s: s + 1e-5),
        "timing.ranks.0: compute, communication and waiting sum to",
    ),
    "a share beside its time": (
        DDP,
        _set("timing", "ranks", 0, "waiting_share", to=lambda s: abs(s - 0.01)),
        "timing.ranks.0.waiting_share: is",
    ),
}


def _held(run: dict[str, Any]) -> dict[str, Any]:
    """What the rank that a stage shows held in it."""
    pairs = ((stage, held) for stage in run["stages"] for held in stage.get("ranks", []))
    found: dict[str, Any] = next(held for stage, held in pairs if held["rank"] == stage["rank"])
    return found


def _transfer(run: dict[str, Any]) -> dict[str, Any]:
    calls = (c for rank in run["ranks"] for c in rank["collectives"])
    found: dict[str, Any] = next(t for c in calls for t in c.get("transfers", []))
    return found


@pytest.mark.parametrize("name", REFUSED)
def test_a_trace_that_contradicts_itself_is_refused(name: str, root: Path, tmp_path: Path) -> None:
    path, change, said = REFUSED[name]
    run = path.partition(".")[2]
    refusal = _refusal(root, tmp_path, path, change)
    assert refusal.startswith(f"runs.{run}.")
    assert said in refusal


@pytest.mark.parametrize("said", ["yesterday", "2026-13-01T00:00:00Z", "", "2026-01-01 00:00:00"])
def test_when_a_trace_was_recorded_is_a_time(said: str, root: Path, tmp_path: Path) -> None:
    document = {**_document(root, "ddp"), "recorded_at": said}
    file = tmp_path / "ddp.json"
    file.write_text(json.dumps(document, indent=1))
    with pytest.raises(TraceError, match=r"ddp\.json:\d+: recorded_at: .* is not a UTC time"):
        read(file)


def test_a_failed_metered_pass_leaves_the_ranks_of_the_timed_one(root: Path) -> None:
    """Ranks are those of the timed pass, which completed before the metered one failed."""
    document = _document(root, "large_batch")
    run = document["runs"]["single_budget"]
    completed = {"status": "completed", "failure": None}
    ranks = [{**rank, **completed} for rank in run["ranks"]]
    document["runs"] = {"single_budget": {**run, "passes": ["timed", "metered"], "ranks": ranks}}
    assert list(violations(Trace.model_validate(document))) == []


TEXT = '{\n "a": 1,\n "b": [\n  {"c": "x:,{"},\n  {\n   "c": [1,\n    2]\n  }\n ]\n}\n'


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("a",), 2),
        (("b",), 3),
        (("b", 0), 4),
        (("b", 0, "c"), 4),
        (("b", 1), 5),
        (("b", 1, "c"), 6),
        (("b", 1, "c", 1), 7),
        (("b", 1, "d"), 5),
        (("b", 1, "c", 9), 6),
        ((), 1),
        (("z",), 1),
    ],
)
def test_the_line_of_a_field_is_that_of_its_key(path: tuple[str | int, ...], line: int) -> None:
    assert line_of(TEXT, path) == line
