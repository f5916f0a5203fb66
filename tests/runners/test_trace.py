"""Traces on disk: whole or not at all, and neither edited nor contradicting themselves.

`tests/generator/test_book.py` has traces that are wrong. A strict build, which the tests of the
site begin with, refuses those of the book that are stale, are lacking, or ended as none declared.
"""

import errno
import json
import os

import pytest

from proofbook.companions.planner.answers.plan_grid import Grid
from proofbook.runners.core.measuring import measure
from proofbook.runners.core.trace.records import Machine, Trace
from proofbook.runners.session.pending import pending
from proofbook.runners.session.progress import Progress
from proofbook.runners.system.files import write_json
from proofbook.runners.traces.files import EDITED, TraceError, read, read_record, trace_paths, write
from tests.sampled import REFERENCE


def test_a_trace_has_a_digest_and_survives_writing_and_reading(tmp_path):
    for committed in trace_paths(REFERENCE):
        path, trace = tmp_path / committed.name, read(committed)
        write(path, trace)
        written, again = path.read_bytes(), read(path)
        assert again == trace
        assert trace.values
        write(path, again)
        assert path.read_bytes() == written


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("reference-cpu-2c/ddp", "run ddp --as-reference --full"),
        ("cpu-1c-ea2ab3/machine", "run ddp --force"),
        ("plans/llama-8b", "plan check llama-8b --write"),
        ("planner/plan_order", "plan check plan_order --write"),
    ],
)
def test_a_file_that_is_missing_or_cut_says_how_to_bring_it_back(tmp_path, file, command):
    path = tmp_path / f"{file}.json"
    path.parent.mkdir()
    for said in ("no such file", "not a whole JSON file"):
        with pytest.raises(TraceError, match=said) as refused:
            read(path)
        advice = f"restore it from git, or make it again with `python -m runners {command}`"
        assert str(refused.value).endswith(advice)
        path.write_text('{"runs": {')


def test_a_full_disk_leaves_the_old_trace_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "machine.json"
    write_json(path, {"before": 1})

    def refuse(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"after": 2})
    assert json.loads(path.read_text()) == {"before": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_number_that_is_not_finite_is_never_written(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"loss": float("nan")})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("file", "kind", "edited"),
    [
        ("traces/1x-h200-af8bca/ddp.json", Trace, '"torch": "'),
        ("traces/1x-h200-af8bca/machine.json", Machine, '"cpu": "'),
        ("planner/plan_order.json", Trace, '"slower_share": 0.'),
        ("planner/plans/gpt2-124m.json", Grid, '"title": "'),
    ],
)
def test_one_edited_number_or_word_of_a_file_is_noticed(root, tmp_path, file, kind, edited):
    path, text = tmp_path / "edited.json", (root / "content" / file).read_text()
    document = json.loads(text.replace(edited, f"{edited}1", 1))
    for values in {"values": document.pop("values")}, {"values": ""}, {}:
        write_json(path, document | values)
        with pytest.raises(TraceError, match=f"{EDITED}; restore it from git, or make it again"):
            read_record(path, kind)


def test_an_edited_trace_is_measured_again(folder, launcher):

    def measured():
        measure.measure(pending("heavier", folder), launcher, Progress())

    measured()
    assert pending("heavier", folder) is None
    path = folder / "heavier.json"
    document = json.loads(path.read_text())
    document["runs"]["light"]["printed"] = ["better"]
    write_json(path, document)
    one = pending("heavier", folder)
    assert (one.reason, one.measured) == ("unreadable or edited", ("light",))
    measured()
    assert pending("heavier", folder) is None


DDP, MODEL = "ddp.ddp", "model_parallel.full"


def more(by):
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
