"""A trace that contradicts itself is refused, with file and field; no measured one is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runners.traces.files import NOT_TRACES, TraceError, read
from runners.traces.invariants import violations
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


# A committed run, the path of a value in it, what is forged, and the message.
FORGED: list[tuple[str, str, Any, str]] = [
    (DDP, "timing.step.median_seconds", 0.5, "timing: has a median or quartile not of"),
    (DDP, "timing.step.samples", [], "timing: has a median or quartile not of its samples"),
    ("communication.ranks_2", "timing.measures.all_gather_3072.median_seconds", 5.0, "median"),
    (DDP, "ranks.1.rank", 0, "ranks: are not as many as world_size, each once"),
    (DDP, "world_size", 10**12, "ranks: are not as many as world_size"),
    (DDP, "backend", "nccl", "backend: nccl communicates on CUDA alone"),
    (DDP, "timing.wall_seconds", 1e-3, "is less than the stages, the steps or the timeline took"),
    ("hangs.order_swapped", "timing.wall_seconds", 0.9, "is less than the timeout after which"),
    (DDP, "timing.oversubscribed", False, "does not follow from world_size and the cores"),
    (DDP, "status", "out_of_memory", "error: stands exactly where a run neither completed"),
    (REFUSED, "budget_bytes", 10**6, "ranks.0.memory.kernel_peak_bytes: is more than the budget"),
    (DDP, "ranks.0.num_parameters", more(1), "num_parameters: is more than the whole model has"),
    (DDP, "ranks.0.memory.peak_bytes", 8, "is less than the parameters that the rank holds"),
    (DDP, "ranks.0.memory.at_peak.gradients_bytes", more(4), "at_peak: does not sum to peak_bytes"),
    (DDP, "epochs.0.loss", 9.0, "epochs.0.loss: is not among the losses of the ranks"),
    (DDP, "step_losses", lambda losses: [0.0] * len(losses), "step_losses: do not have the"),
    (MODEL, "ranks.0.collectives", [], "ranks: one receives from another what that one did not"),
]


def _forged(root: Path, run: str, path: str, forged: Any) -> dict[str, Any]:
    """A committed trace with one value of a run forged."""
    experiment, _, name = run.partition(".")
    document = _document(root, experiment)
    holder: Any = document["runs"][name]
    *above, last = (int(p) if p.isdigit() else p for p in path.split("."))
    for step in above:
        holder = holder[step]
    holder[last] = forged(holder[last]) if callable(forged) else forged
    return document


@pytest.mark.parametrize(("run", "path", "forged", "said"), FORGED)
def test_one_forged_value_of_a_committed_run_is_noticed(
    run: str, path: str, forged: Any, said: str, root: Path
) -> None:
    found = list(violations(Trace.model_validate(_forged(root, run, path, forged))))
    assert {one.path[:2] for one in found} == {("runs", run.partition(".")[2])}
    broken = [f"{'.'.join(map(str, one.path[2:]))}: {one.message}" for one in found]
    assert any(said in one for one in broken), broken


def test_a_forged_value_is_refused_with_its_file_and_field(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "ddp.json"
    file.write_text(json.dumps(_forged(root, DDP, "backend", "nccl")))
    with pytest.raises(TraceError) as refused:
        read(file)
    assert str(refused.value) == f"{file}: runs.ddp.backend: nccl communicates on CUDA alone"


def test_no_rank_holds_more_than_its_machine_has(root: Path, tmp_path: Path) -> None:
    machine = json.loads((root / REFERENCE / "machine.json").read_text())
    for name, changed in (
        ("ddp", _document(root, "ddp")),
        ("machine", machine | {"memory_bytes": 9}),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(changed))
    with pytest.raises(TraceError, match="kernel_peak_bytes: is more than the machine has"):
        read(tmp_path / "ddp.json")


def test_the_cores_of_all_nodes_count(root: Path) -> None:
    """Of `ddp`, four ranks on two cores are too many; on two nodes with as many each they fit."""
    document = _forged(root, DDP, "timing.oversubscribed", False)
    document["runs"] = {"ddp": document["runs"]["ddp"]}
    assert len(list(violations(Trace.model_validate(document)))) == 1
    document["machine"] = f"2-nodes-{document['machine']}"
    assert list(violations(Trace.model_validate(document))) == []
