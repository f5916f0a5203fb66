"""The files of a site: what is written and deleted, and words in front of scripts."""

from __future__ import annotations

import json
import subprocess

import pytest

from generator.content.errors import ContentErrors
from generator.website import publish
from generator.website.publish import bring_to

BOOK = {"index.md": b"home", "topics/ddp/learn.md": b"lesson"}


def test_what_somebody_else_put_there_is_neither_overwritten_nor_deleted(tmp_path):
    bring_to(tmp_path, {**BOOK, "topics/fsdp/learn.md": b"lesson"})
    (tmp_path / "topics/fsdp/mine.md").write_bytes(b"mine")
    (tmp_path / "guide.md").write_bytes(b"my guide")
    with pytest.raises(ContentErrors, match=r"guide\.md: .* written by hand; move it to"):
        bring_to(tmp_path, {**BOOK, "guide.md": b"the book's"})
    bring_to(tmp_path, {"index.md": b"another home"})
    files = (path for path in tmp_path.rglob("*") if path.is_file() and path.name != publish.NOTE)
    assert {path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in files} == {
        "index.md": b"another home", "topics/fsdp/mine.md": b"mine", "guide.md": b"my guide",
    }  # fmt: skip


def test_words_for_scripts_come_through_whole_and_end_no_script():
    words = {"done": '</script><!-- \u2028 “ja” \\ "quo\'te"', "nested": {"of": "{n} von {of}"}}
    line = publish.words_for_scripts("words", words)
    start, end = b"(window.proofbook=window.proofbook||{}).words=", b";\n"
    assert line.startswith(start)
    assert line.endswith(end)
    told = line[len(start) : -len(end)]
    assert json.loads(told) == words
    assert line.isascii()
    assert b"<" not in line
    assert line.count(b"\n") == 1


def test_what_is_read_of_runs_and_plans_and_not_committed_is_told_before_it_goes_out(copy):
    """Also what git ignores; but no folder of another machine, which such a book does not read."""
    copy.add_machine("shared", "tiny_memory")
    (copy.content / "verified").mkdir()
    (copy.content.parent / ".gitignore").write_text("/content/traces/*\n")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for command in (["init", "-q"], ["add", "-A", "-f", "."], ["commit", "-qm", "book"]):
        subprocess.run([*git, *command], cwd=copy.content.parent, check=True)
    assert publish.changed(copy.content) == []
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    copy.append("topics/averaging/quiz.yml", "# edited\n")
    assert publish.changed(copy.content) == []
    told = ["planner/plans/tiny.json", "traces/reference-frozen/tiny_memory.json"]
    for name in told:
        copy.append(name, "\n")
    new = ["traces/reference-frozen/labs.json", "traces/shared/labs.json", "verified/new.json"]
    for name in new:
        (copy.content / name).write_text("{}")
    (copy.content / "traces" / "shared" / ".labs.part").write_text("{}")
    assert publish.changed(copy.content) == sorted([*told, *new])
