"""What the reader of traces of watched scripts refuses."""

import json

import pytest

from proofbook.runners.traces.files import TraceError
from proofbook.runners.verify.report import SUFFIX, read
from tests.conftest import ROOT
from tests.recorded import write

COMMITTED = ROOT / "content" / "verified" / "norms_twice.json"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda trace: trace.update(schema_version=7), "schema_version: input should be 2"),
        (lambda trace: trace.update(tensors=trace["tensors"][1:]), "tensors: 13, and the report"),
        (lambda trace: trace["report"].update(verdict="agrees"), "report.verdict: 'agrees', with"),
        (lambda trace: trace["report"].update(verdict="right"), "report.verdict: input should be"),
        (('"rank": 0', '"rank": 1'), "edited or cut"),
        (slice(500), "not a whole JSON file"),
        (slice(0), "(whole file): not a JSON"),
    ],
)
def test_a_trace_that_is_edited_cut_or_contradicts_itself_is_refused_in_a_line(
    tmp_path, change, says
):
    text, path = COMMITTED.read_text(encoding="utf-8"), tmp_path / f"odd{SUFFIX}"
    if callable(change):
        trace = json.loads(text)
        change(trace)
        write(path, trace)
    else:
        edited = text.replace(*change) if isinstance(change, tuple) else text[change] or "[]"
        path.write_text(edited, encoding="utf-8")
    with pytest.raises(TraceError) as refused:
        read(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert says in str(refused.value)
    assert str(refused.value).endswith("; delete it, or run `verify` again")
