"""The digest in a trace: an edit by hand and a half-merged file are noticed."""

import io
import json

import pytest

from runners.measuring import measure
from runners.measuring.pending import pending
from runners.measuring.progress import Progress
from runners.traces.files import EDITED, TraceError, read, read_record, write, write_json
from runners.traces.plan_grid import Grid
from runners.traces.records import Machine, Primitives, Trace
from tests.recorded import write as sealed_write


def test_one_edited_number_is_noticed(root, tmp_path):
    frozen = root / "tests" / "book" / "content" / "traces" / "reference-frozen"
    path = tmp_path / "tiny_training.json"
    write(path, read(frozen / path.name))
    path.write_text(path.read_text().replace("0.596", "0.597").replace("0.61", "0.62"))
    for without in {}, {"values": ""}, {}:
        with pytest.raises(TraceError, match=f"{EDITED}; restore it from git, or make it again"):
            read(path)
        document = json.loads(path.read_text())
        document.pop("values", None)
        write_json(path, document | without)


def _altered(thing):
    """A JSON value with one leaf changed."""
    match thing:
        case dict() | list() if thing:
            key = next(iter(thing)) if isinstance(thing, dict) else 0
            changed = thing.copy()
            changed[key] = _altered(thing[key])
            return changed
        case str():
            return f"{thing}.1"
        case bool():
            return not thing
        case int() | float():
            return thing + 1
    return "1.0.0"


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("traces/1x-h200-af8bca/ddp.json", Trace),
        ("traces/1x-h200-af8bca/machine.json", Machine),
        ("traces/cpu-1c-ea2ab3/primitives.json", Primitives),
        ("planner/plan_steps.json", Trace),
        ("planner/plans/gpt2-124m.json", Grid),
    ],
)
def test_an_edit_of_any_field_of_a_file_is_noticed(root, tmp_path, file, kind):
    document, path = json.loads((root / "content" / file).read_text()), tmp_path / "edited.json"
    for field, held in document.items():
        write_json(path, document | {field: _altered(held)})
        with pytest.raises(TraceError):
            read_record(path, kind)


@pytest.mark.parametrize(
    ("field", "word", "said"),
    [
        ("recorded_at", "yesterday", "recorded_at: 'yesterday' is no time such as '2026-"),
        ("recorded_at", "2026-02-30T00:00:00Z", "'2026-02-30T00:00:00Z' is no time"),
        ("circumstances", {"python": "3", "torch": "2.13.0"}, "python: '3' is no version such as"),
    ],
)
def test_a_malformed_date_or_version_is_one_line(root, tmp_path, field, word, said):
    frozen = root / "tests/book/content/traces/reference-frozen/tiny_memory.json"
    sealed_write(tmp_path / frozen.name, json.loads(frozen.read_text()) | {field: word})
    with pytest.raises(TraceError) as refused:
        read(tmp_path / frozen.name)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


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
