"""Hostile content and traces: each mistake is located, nothing crashes, runs or is evaluated."""

import json
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from proofbook.generator.content.errors import ContentErrors
from tests.generator.conftest import FROZEN, Copy, render
from tests.recorded import write

WRITTEN = sorted(
    path.relative_to(FROZEN).as_posix()
    for path in FROZEN.rglob("*")
    if path.suffix in (".yml", ".json")
)
PLACE = re.compile(r"content/[^:]+(:\d+){0,2}: \S.*")
PIECES = (
    "\t", "\0", "[", "{", "- ", "? ", ": ", "'", '"', "&a ", "*a", "!!binary ", "<<: ", "---\n",
    "!!python/object/apply:os.mkdir [ran]", "{{ 1/0 }}", "{{ ().__class__.__base__ }}", "{{", "}}",
    "{{ open('ran', 'w') }}", "9" * 400, "1e999", "nan", "٣", "é", "\ue000", "\u202e", "# ",
    "<script>alert(1)</script>", "[x](javascript:x)", "{% for x in y %}", "../", "~", "no", "\n",
)  # fmt: skip
EVIL = '<script>alert(x)</script><img src=q onerror=alert(x)> & "quo\'te" *a* [b](javascript:c) `d`'
ASKING = "{{ nosuch }} {{ tiny_memory.whole }} {% if %} }} {#"


@given(
    file=st.sampled_from(WRITTEN),
    at=st.floats(0, 1),
    cut=st.integers(0, 30),
    pieces=st.lists(st.sampled_from(PIECES), max_size=3),
)
def test_whatever_is_put_into_a_file_each_mistake_is_located_and_nothing_runs(
    file, at, cut, pieces
):
    with TemporaryDirectory() as folder:
        shutil.copytree(FROZEN, Path(folder) / "content")
        copy = Copy(Path(folder) / "content")
        text = (copy.content / file).read_text()
        begin = int(at * len(text))
        changed = text[:begin] + "".join(pieces) + text[begin + cut :]
        (copy.content / file).write_text(changed, newline="")
        for line in copy.errors():
            assert PLACE.fullmatch(line), line
            assert line.isprintable(), line
        assert not any(path.name == "ran" for path in Path(folder).rglob("*"))
    assert not Path("ran").exists()


def test_what_an_editor_hides_is_left_alone(copy):
    for folder in ("claims", "topics/averaging", "traces/reference-frozen"):
        for name in (".#tiny.yml", ".#tiny.json"):
            (copy.content / folder / name).symlink_to("somebody@a.desk:1")
    assert copy.errors() == []


def test_a_list_of_the_planner_that_is_refused_is_told_in_one_line(copy):
    def refused(_):
        return TypeAdapter(bool).validate_python("twelve heads")

    with pytest.raises(ContentErrors, match=r"\Acontent/planner: bool: Input should .*\Z"):
        copy.load(is_stale=lambda trace: trace.experiment.startswith("plan_") and refused(trace))


def test_what_a_trace_says_is_printed_and_never_evaluated(copy):
    for experiment, question in ("tiny_memory", ASKING), ("tiny_training", EVIL):
        document = json.loads(copy.trace(experiment).read_text())
        write(copy.trace(experiment), document | {"question": question})
    assert copy.errors() == []
    pages = render(copy.load())
    for name, page in pages.items():
        for harm in ("<script>alert", "<img src=q", 'href="javascript', "<em>a</em>"):
            assert harm not in page, name
    assert "{{ nosuch }} {{ tiny_memory.whole }} {% if %}" in pages["evidence/tiny_memory.md"]
