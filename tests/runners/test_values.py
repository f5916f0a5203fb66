"""The digest in a trace: an edit by hand and a half-merged file are noticed."""

import io
import json

import pytest

from runners.measuring import measure
from runners.measuring.pending import pending
from runners.measuring.progress import Progress
from runners.traces.files import EDITED, TraceError, read, write, write_json


def test_one_edited_number_is_noticed(root, tmp_path):
    frozen = root / "tests" / "book" / "content" / "traces" / "reference-frozen"
    path = tmp_path / "tiny_training.json"
    write(path, read(frozen / path.name))
    path.write_text(path.read_text().replace("0.596", "0.597").replace("0.61", "0.62"))
    for without in {}, {"values": ""}, {}:
        with pytest.raises(TraceError, match=f"runs: {EDITED}"):
            read(path)
        document = json.loads(path.read_text())
        document.pop("values", None)
        write_json(path, document | without)


@pytest.mark.ranks
def test_an_edited_trace_is_measured_again(folder, launcher):

    def measured():
        measure.measure(pending("heavier", folder), launcher, Progress(io.StringIO()))

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
