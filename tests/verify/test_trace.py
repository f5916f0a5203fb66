"""What the reader of traces of watched scripts refuses."""

import json

import pytest

from runners.traces.files import TraceError
from runners.verify.report import SUFFIX, read
from tests.conftest import ROOT
from tests.recorded import write

COMMITTED = ROOT / "content" / "verified" / "norms_twice.json"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda one: one.update(schema_version=7), "schema_version: input should be 2"),
        (lambda one: one.update(tensors=one["tensors"][1:]), "tensors: 13, and the report has"),
        (lambda one: one["report"].update(verdict="agrees"), "report.verdict: 'agrees', with 1"),
        (lambda one: one["report"].update(verdict="right"), "report.verdict: input should be"),
    ],
)
def test_a_trace_of_another_version_or_one_that_contradicts_itself_is_refused_in_a_line(
    tmp_path, change, says
):
    document, path = json.loads(COMMITTED.read_text(encoding="utf-8")), tmp_path / f"odd{SUFFIX}"
    change(document)
    write(path, document)
    with pytest.raises(TraceError) as refused:
        read(path)
    assert str(refused.value).startswith(f"{path}: {says}")
    assert str(refused.value).endswith("; delete it, or run `verify` again")


def test_an_edited_and_a_cut_trace_are_refused(tmp_path):
    text, path = COMMITTED.read_text(encoding="utf-8"), tmp_path / f"odd{SUFFIX}"
    for held, says in (
        (text.replace('"rank": 0', '"rank": 1'), "edited or cut"),
        (text[:500], "not a whole JSON file"),
        ("[]", "(whole file): not a JSON"),
    ):
        path.write_text(held, encoding="utf-8")
        with pytest.raises(TraceError, match=rf"odd{SUFFIX}: .*") as refused:
            read(path)
        assert says in str(refused.value)
