"""A trace that contradicts itself is refused, with file and field."""

import json

import pytest

from proofbook.runners.traces.files import TraceError, read
from tests.sampled import REFERENCE

DDP, MODEL = "ddp.ddp", "model_parallel.full"


def more(by):
    """A number that is larger by so much."""
    return lambda number: number + by


# A committed run, the path of a value in it, what is forged, and the message.
FORGED = [
    (DDP, "timing.step.median_seconds", 0.5, "timing: has a median or quartile not of"),
    (DDP, "timing.step.samples", [], "timing: has a median or quartile not of its samples"),
    ("communication.ranks_2", "timing.measures.all_gather_3072.median_seconds", 5.0, "timing: has"),
    (DDP, "ranks.1.rank", 0, "ranks: are not as many as world_size, each once"),
    (DDP, "world_size", 10**12, "ranks: are not as many as world_size"),
    (DDP, "status", "out_of_memory", "error: stands exactly where a run neither completed"),
    (DDP, "ranks.0.memory.at_peak.gradients_bytes", more(4), "ranks.0.memory.at_peak: does not"),
    (MODEL, "ranks.0.collectives", [], "ranks: one receives from another what that one did not"),
]


@pytest.mark.parametrize(("run", "path", "forged", "said"), FORGED)
def test_one_forged_value_of_a_committed_run_is_refused_with_its_file_and_field(
    run, path, forged, said, tmp_path
):
    experiment, _, name = run.partition(".")
    document = json.loads((REFERENCE / f"{experiment}.json").read_text())
    holder = document["runs"][name]
    *above, last = (int(p) if p.isdigit() else p for p in path.split("."))
    for step in above:
        holder = holder[step]
    holder[last] = forged(holder[last]) if callable(forged) else forged
    file = tmp_path / f"{experiment}.json"
    file.write_text(json.dumps(document))
    with pytest.raises(TraceError) as refused:
        read(file)
    assert str(refused.value).startswith(f"{file}: runs.{name}.{said}")
