"""A trace that contradicts itself is refused, with file and field."""

import json
from pathlib import Path

import pytest

from runners.traces.files import TraceError, read
from runners.traces.invariants import violations
from runners.traces.records import Trace

REFERENCE = Path("content/traces/reference-cpu-2c")
DDP, MODEL = "ddp.ddp", "model_parallel.full"


def _document(root, experiment):
    return json.loads((root / REFERENCE / f"{experiment}.json").read_text())


def more(by):
    """A number that is larger by so much."""
    return lambda number: number + by


# A committed run, the path of a value in it, what is forged, and the message.
FORGED = [
    (DDP, "timing.step.median_seconds", 0.5, "timing: has a median or quartile not of"),
    (DDP, "timing.step.samples", [], "timing: has a median or quartile not of its samples"),
    ("communication.ranks_2", "timing.measures.all_gather_3072.median_seconds", 5.0, "median"),
    (DDP, "ranks.1.rank", 0, "ranks: are not as many as world_size, each once"),
    (DDP, "world_size", 10**12, "ranks: are not as many as world_size"),
    (DDP, "status", "out_of_memory", "error: stands exactly where a run neither completed"),
    (DDP, "ranks.0.memory.at_peak.gradients_bytes", more(4), "at_peak: does not sum to peak_bytes"),
    (MODEL, "ranks.0.collectives", [], "ranks: one receives from another what that one did not"),
]


def _forged(root, run, path, forged):
    """A committed trace with one value of a run forged."""
    experiment, _, name = run.partition(".")
    document = _document(root, experiment)
    holder = document["runs"][name]
    *above, last = (int(p) if p.isdigit() else p for p in path.split("."))
    for step in above:
        holder = holder[step]
    holder[last] = forged(holder[last]) if callable(forged) else forged
    return document


@pytest.mark.parametrize(("run", "path", "forged", "said"), FORGED)
def test_one_forged_value_of_a_committed_run_is_noticed(run, path, forged, said, root):
    found = list(violations(Trace.model_validate(_forged(root, run, path, forged))))
    assert {path[:2] for path, _ in found} == {("runs", run.partition(".")[2])}
    broken = [f"{'.'.join(map(str, path[2:]))}: {wrong}" for path, wrong in found]
    assert any(said in one for one in broken), broken


def test_a_forged_value_is_refused_with_its_file_and_field(root, tmp_path):
    file = tmp_path / "ddp.json"
    file.write_text(json.dumps(_forged(root, DDP, "world_size", 9)))
    with pytest.raises(TraceError) as refused:
        read(file)
    assert str(refused.value) == f"{file}: runs.ddp.ranks: are not as many as world_size, each once"
