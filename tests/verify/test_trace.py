"""What the reader of traces of watched scripts refuses."""

import json
import shutil

import pytest

from proofbook.companions.verify import report
from proofbook.companions.verify.report import SUFFIX, read
from proofbook.runners.traces import digest
from proofbook.runners.traces.files import TraceError
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


@pytest.fixture
def judge_in(tmp_path, monkeypatch):
    """The digest of `verify` in a copy of the code, of which a part of a file is replaced."""
    for package in digest.ROOTS:
        shutil.copytree(ROOT / package, tmp_path / package)
    monkeypatch.setattr(digest, "ROOT", tmp_path)
    folder = tmp_path / "companions" / "verify"
    monkeypatch.setattr(report, "__file__", str(folder / "report.py"))
    monkeypatch.setattr(report, "_FILE", folder / "causes.yml")

    def judge(name="", old="", new=""):
        path, text = folder / name, name and (folder / name).read_text(encoding="utf-8")
        if name:
            assert old in text
            path.write_text(text.replace(old, new, 1), encoding="utf-8")
        digest.forget_code()
        report.causes.cache_clear()
        found = report.own_digest()
        if name:
            path.write_text(text, encoding="utf-8")
        return found

    yield judge
    digest.forget_code()
    report.causes.cache_clear()


def test_a_committed_report_is_of_the_verify_that_judged_it(judge_in):
    same, other = judge_in("compare.py", '"""Compares', '"""What compares'), judge_in()
    assert same == other == judge_in("fit.py", "import torch\n", "import torch  # as ranks do\n")
    edits = [
        ("causes.py", "return in_words(factor", "return in_words(1e3 * factor"),
        ("fit.py", "return ", "return not "),
        ("losses.py", "        return ", "        return not "),
        ("../../runners/judging/rounding.py", "NORM = 4\n", "NORM = 4e3\n"),
        ("causes.yml", "usually: ", "usually: Never. "),
    ]
    assert same not in [judge_in(*edit) for edit in edits]
