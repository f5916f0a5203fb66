"""A trace that contradicts itself is refused, with file, line and field; no measured one is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runners.traces.files import NOT_TRACES, TraceError, read
from runners.traces.invariants import RULES, violations
from runners.traces.records import Trace

REFERENCE = Path("content/traces/reference-cpu-2c")
DDP, MODEL, REFUSED = "ddp.ddp", "model_parallel.full", "large_batch.single_budget"


def _document(root: Path, experiment: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((root / REFERENCE / f"{experiment}.json").read_text())
    return document


def test_no_measured_trace_breaks_an_invariant(root: Path) -> None:
    frozen = root / "tests" / "book" / "content" / "traces" / "reference-frozen"
    files = [*(root / REFERENCE).glob("*.json"), *frozen.glob("*.json")]
    traces = [path for path in files if path.stem not in NOT_TRACES]
    assert traces
    assert {p.stem: list(violations(read(p))) for p in traces if list(violations(read(p)))} == {}


def more(by: float) -> Callable[[Any], Any]:
    """A number that is larger by so much."""
    return lambda number: number + by


def once_more(things: list[Any]) -> list[Any]:
    """A list that holds its first element a second time."""
    return [*things, things[0]]


def the_first(holder: str, **changes: Any) -> Callable[[Any], Any]:
    """Change the first record below a part of a run that has a key, such as `transfers`."""

    def below(part: Any) -> Any:
        for inside in part.values() if isinstance(part, dict) else part:
            if isinstance(inside, dict) and inside.get(holder):
                return inside[holder]
            if isinstance(inside, dict | list) and (found := below(inside)):
                return found
        return None

    def changed(part: Any) -> Any:
        found = below(part)
        (found[0] if isinstance(found, list) else found).update(changes)
        return part

    return changed


# A committed run, the path of a value in it (or none: several), what is forged, and the message.
FORGED: list[tuple[str, str, Any, str]] = [
    (DDP, "timing.step.median_seconds", 0.5, "median_seconds: does not follow from samples"),
    (DDP, "timing.step.first_quartile_seconds", 0.0, "median_seconds: does not follow from"),
    (DDP, "timing.step.num_samples", 7, "median_seconds: does not follow from samples"),
    (DDP, "timing.step.samples", [], "samples: holds no sample"),
    ("communication.ranks_2", "timing.measures.all_gather_3072.median_seconds", 5.0, "median"),
    (DDP, "", {"status": "skipped", "reason": "no"}, "ranks: a skipped run has recorded nothing"),
    (DDP, "ranks.1.rank", 0, "ranks: are not as many as world_size, each once"),
    (DDP, "ranks", lambda ranks: ranks[:-1], "ranks: are not as many as world_size"),
    (DDP, "world_size", 10**12, "ranks: are not as many as world_size"),
    (DDP, "reason", "not measured", "reason: a run has a reason exactly where it was skipped"),
    (DDP, "status", "skipped", "reason: a run has a reason exactly where it was skipped"),
    (DDP, "backend", "nccl", "backend: nccl communicates on CUDA alone"),
    (DDP, "passes", once_more, "passes: a run that was not skipped has passes, each once"),
    (DDP, "ranks.0.memory.kernel_peak_bytes", -1, "kernel_peak_bytes: -1 is negative"),
    (DDP, "ranks.0.memory.phases.lost", -8, "phases.lost: -8 is negative"),
    (DDP, "ranks.0.collectives.0.count", -2, "count: -2 is negative"),
    (DDP, "timing.wall_seconds", -0.1, "wall_seconds: "),
    (DDP, "timing.stages.wrap", -0.1, "timing.stages.wrap: -0.1 is negative"),
    (DDP, "epochs.0.accuracy", 1.2, "accuracy: 1.2 is not a share between 0 and 1"),
    (DDP, "timing.wall_seconds", 1e-3, "is less than the stages, the steps or the timeline took"),
    ("hangs.order_swapped", "timing.wall_seconds", 0.9, "is less than the timeout after which"),
    (DDP, "timing.oversubscribed", False, "does not follow from world_size and the cores"),
    (DDP, "status", "out_of_memory", "error: stands exactly where a run neither completed"),
    (REFUSED, "status", "completed", "error: stands exactly where a run neither completed"),
    (DDP, "status", "diverged", "non_finite: a run has diverged exactly where"),
    (REFUSED, "error.kind", "peer_lost", "error: is not the failure that its rank"),
    (REFUSED, "error.rank", 9, "error: is not the failure that its rank"),
    (REFUSED, "error.requested_bytes", 1, "error: is not the failure that its rank"),
    (REFUSED, "budget_bytes", 10**6, "ranks.0.memory.kernel_peak_bytes: is more than the budget"),
    (DDP, "ranks.2.status", "failed", "ranks.2.status: failed, in a run that did not"),
    ("hangs.lengths_differ", "ranks.1.failure.rank", 0, "failure.rank: is another than the rank"),
    (DDP, "ranks.0.failure", {"kind": "hang", "message": "", "requested_bytes": None, "rank": 0,
     "phase": "forward", "step": None}, "failure: does not agree with the status"),
    (DDP, "ranks.0.num_parameters", more(1), "num_parameters: is more than the whole model has"),
    (DDP, "ranks.0.memory", lambda m: m | {"peak_bytes": 8, "at_peak": dict.fromkeys(
     m["at_peak"], 0) | {"buffers_bytes": 8}, "largest": dict.fromkeys(m["largest"], 8),
     "phases": {m["peak_phase"]: 8}}, "is less than the parameters that the rank holds"),
    (DDP, "ranks.0.collectives", once_more, "collectives: lists an operation twice"),
    (DDP, "ranks.0.memory.at_peak", None, "peak_bytes: is known without its classes"),
    (DDP, "ranks.0.memory.at_peak.gradients_bytes", more(4), "at_peak: does not sum to peak_bytes"),
    (DDP, "ranks.0.memory.peak_bytes", more(4), "at_peak: does not sum to peak_bytes"),
    (DDP, "ranks.0.memory.largest.activations_bytes", 0, "largest: has a class that exceeds"),
    (DDP, "ranks.0.memory.phases.lost", 10**9, "phases: the largest is not peak_bytes"),
    (DDP, "ranks.0.memory.peak_phase", "dinner", "peak_phase: is not the phase that reached"),
    (DDP, "stages", once_more, "stages: lists a name twice"),
    (DDP, "stages.0.bytes", 4, "stages.0.bytes: does not follow from shape_out and dtype"),
    (DDP, "stages.0.shape_out", [64], "stages.0.bytes: does not follow from shape_out"),
    (DDP, "stages.0.values", [0.5] * 10**5, "values: holds more values than shape_out"),
    (MODEL, "stages", the_first("ranks", shape_out=[1]), "ranks: differ from their shapes"),
    (MODEL, "stages", the_first("moves", source=12), "source: there is no rank 12 among"),
    (DDP, "timing.stages.lunch", 0.0, "timing.stages: times a stage that the run has not"),
    (DDP, "timing.prediction.lunch", 0.0, "timing.prediction: times a step that the run has not"),
    (DDP, "model.num_parameters", more(1), "model.num_parameters: is not the sum of the layers"),
    (DDP, "model.bytes", more(4), "model.bytes: is not the sum of the layers"),
    (DDP, "model.dtype", "float64", "model.bytes: does not follow from num_parameters and dtype"),
    (DDP, "model.layers.0.weight_shape", [10**6], "weight_shape: holds more values than"),
    (DDP, "epochs.0.epoch", 5, "epochs: are not numbered from 1 on"),
    (DDP, "epochs.0.ranks.0.rank", 1, "epochs.0.ranks: are not ranks of the run, each once"),
    (DDP, "epochs.0.loss", 9.0, "is not among the losses of the ranks"),
    ("ddp.ddp", "step_losses", lambda losses: [0.0] * len(losses), "step_losses: do not have the"),
    (DDP, "validation.loss", 9.0, "validation.loss: is not the last epoch's validation_loss"),
    (MODEL, "ranks", the_first("transfers", bytes=1), "do not sum to the bytes of the operation"),
    (MODEL, "ranks", the_first("transfers", count=99), "do not sum to the count of the operation"),
    (MODEL, "ranks", the_first("transfers", destination=8), "destination: there is no rank 8"),
    (MODEL, "ranks.0.collectives", [], "ranks: one receives from another what that one did not"),
    (MODEL, "ranks", the_first("transfers", source=None, destination=None), "names neither a"),
    (DDP, "timing.clocks.1.rank", 0, "timing.clocks: are not one of each rank"),
    (DDP, "timing.clocks.0.offset_seconds", 1e-6, "timing.clocks: has a clock of rank 0 that lies"),
    (DDP, "timing.ranks", [], "timing.ranks: are not those of the timeline, each once"),
    (DDP, "timing.timeline.1.end_seconds", 0.0, "timeline: does not fill the step"),
    (DDP, "timing.timeline.1.start_seconds", more(1e-5), "timeline: does not fill the step"),
    (DDP, "timing.timeline.-1.end_seconds", 0.5, "timeline: does not fill the step"),
    (DDP, "timing.ranks.0.compute_seconds", more(1e-5), "timing.ranks: do not fill the step"),
    (DDP, "timing.ranks.0.waiting_share", lambda s: abs(s - 0.01), "timing.ranks: do not fill"),
]  # fmt: skip


def _forged(root: Path, run: str, path: str, forged: Any) -> dict[str, Any]:
    """A committed trace with one value of a run forged."""
    experiment, _, name = run.partition(".")
    document = _document(root, experiment)
    holder: Any = document["runs"][name]
    if not path:
        holder.update(forged)
        return document
    *above, last = (int(p) if p.lstrip("-").isdigit() else p for p in path.split("."))
    for step in above:
        holder = holder[step]
    holder[last] = forged(holder[last]) if callable(forged) else forged
    return document


def _broken(root: Path, run: str, path: str, forged: Any) -> list[str]:
    trace = Trace.model_validate(_forged(root, run, path, forged))
    found = list(violations(trace))
    assert {one.path[:2] for one in found} <= {("runs", run.partition(".")[2])}
    return [f"{'.'.join(map(str, one.path[2:]))}: {one.message}" for one in found]


@pytest.mark.parametrize(("run", "path", "forged", "said"), FORGED)
def test_one_forged_value_of_a_committed_run_is_noticed(
    run: str, path: str, forged: Any, said: str, root: Path
) -> None:
    broken = _broken(root, run, path, forged)
    assert any(said in one for one in broken), broken


def test_every_rule_is_broken_by_a_forged_value(root: Path) -> None:
    broken = {line.partition(": ")[2] for *forged, _ in FORGED for line in _broken(root, *forged)}
    assert {rule.wrong for rules in RULES.values() for rule in rules} <= broken


def test_a_forged_value_is_refused_with_its_file_and_field(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "ddp.json"
    file.write_text(json.dumps(_forged(root, DDP, "timing.clocks.1.rank", 0)))
    with pytest.raises(TraceError) as refused:
        read(file)
    assert str(refused.value).startswith(f"{file}: runs.ddp.timing.clocks: are not one of")
    file.write_text(json.dumps({**_document(root, "ddp"), "recorded_at": "2026-13-01T00:00:00Z"}))
    with pytest.raises(TraceError, match=r"ddp\.json: recorded_at: .* is not a UTC time"):
        read(file)


def test_no_rank_holds_more_than_its_machine_has(root: Path, tmp_path: Path) -> None:
    machine = json.loads((root / REFERENCE / "machine.json").read_text())
    for name, changed in (
        ("ddp", _document(root, "ddp")),
        ("machine", machine | {"memory_bytes": 9}),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(changed))
    with pytest.raises(TraceError, match="kernel_peak_bytes: is more than the machine has"):
        read(tmp_path / "ddp.json")


def test_a_failed_metered_pass_leaves_the_ranks_of_the_timed_one(root: Path) -> None:
    """Ranks are those of the timed pass, which completed before the metered one failed."""
    document = _document(root, "large_batch")
    run = document["runs"]["single_budget"]
    completed = {"status": "completed", "failure": None}
    ranks = [{**rank, **completed} for rank in run["ranks"]]
    document["runs"] = {"single_budget": {**run, "passes": ["timed", "metered"], "ranks": ranks}}
    assert list(violations(Trace.model_validate(document))) == []
