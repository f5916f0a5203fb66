"""The digest in a trace: an edit by hand and a half-merged file are noticed."""

import json

import pytest

from proofbook.runners.core.measuring import measure
from proofbook.runners.core.trace.records import Machine, Trace
from proofbook.runners.planner.answers.plan_grid import Grid
from proofbook.runners.session.pending import pending
from proofbook.runners.session.progress import Progress
from proofbook.runners.system.files import write_json
from proofbook.runners.traces.files import EDITED, TraceError, read_record


@pytest.mark.parametrize(
    ("file", "kind", "edited"),
    [
        ("traces/1x-h200-af8bca/ddp.json", Trace, '"torch": "'),
        ("traces/1x-h200-af8bca/machine.json", Machine, '"cpu": "'),
        ("planner/plan_steps.json", Trace, '"share": 0.'),
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


@pytest.mark.ranks
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
