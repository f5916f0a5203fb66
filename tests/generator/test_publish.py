"""The files of a site: what is written and deleted, small scripts, words in front of them."""

from __future__ import annotations

import json
import re

import pytest

from generator.content.errors import ContentErrors
from generator.pages.press import Press
from generator.website import publish
from generator.website.publish import bring_to

SOURCES = {
    path.name: (path,)
    for path in publish.ASSETS.glob("*.js")
    if not path.name.startswith(publish.VENDORED)
} | {"quiz.js": publish.QUIZ_PARTS}
OURS = sorted(SOURCES)
SAID = re.compile(r'"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`')


BOOK = {"index.md": b"home", "topics/ddp/learn.md": b"lesson"}


def held(folder):
    """What a folder holds, without the list of what was written."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != publish.NOTE)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_what_somebody_else_put_there_is_neither_overwritten_nor_deleted(tmp_path):
    bring_to(tmp_path, {**BOOK, "topics/fsdp/learn.md": b"lesson"})
    (tmp_path / "topics/fsdp/mine.md").write_bytes(b"mine")
    (tmp_path / "guide.md").write_bytes(b"my guide")
    with pytest.raises(ContentErrors, match=r"guide\.md: .* written by hand; move it to"):
        bring_to(tmp_path, {**BOOK, "guide.md": b"the book's"})
    change = bring_to(tmp_path, {"index.md": b"another home"})
    assert (change.num_written, change.num_deleted) == (1, 2)
    assert held(tmp_path) == {
        "index.md": b"another home", "topics/fsdp/mine.md": b"mine", "guide.md": b"my guide",
    }  # fmt: skip
    assert not (tmp_path / "topics" / "ddp").exists()


def test_a_write_that_was_cut_short_is_finished_by_the_next(tmp_path, monkeypatch):
    bring_to(tmp_path, BOOK)
    new = {"index.md": b"another home", "topics/ddp/learn.md": b"another lesson"}
    replace = type(tmp_path).replace

    def full(path, target):
        if target.name == "learn.md":
            raise OSError(28, "No space left on device")
        return replace(path, target)

    with monkeypatch.context() as cut:
        cut.setattr(type(tmp_path), "replace", full)
        with pytest.raises(OSError, match="No space"):
            bring_to(tmp_path, new)
    assert held(tmp_path) == {"index.md": b"another home", "topics/ddp/learn.md": b"lesson"}
    bring_to(tmp_path, new)
    assert held(tmp_path) == new


@pytest.fixture(scope="module")
def scripts(book, root):
    files = publish.site_files(book, root / "tests" / "book" / "content", Press())
    return {name: files[f"assets/{name}"] for name in OURS}


@pytest.mark.parametrize("folder", [".", "content", "content/../content"])
def test_pages_never_take_the_place_of_what_they_are_made_from(copy, folder):
    before = sorted(copy.content.rglob("*"))
    with pytest.raises(OSError, match="pages may not replace the content"):
        publish.publish(copy.load(), copy.content, copy.content.parent / folder, Press())
    assert sorted(copy.content.rglob("*")) == before


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


@pytest.mark.parametrize("name", OURS)
def test_a_published_script_says_every_text_of_its_source_and_no_comment(scripts, name):
    source = "".join(path.read_text(encoding="utf-8") for path in SOURCES[name])
    code = "\n".join(line for line in source.splitlines() if not line.strip().startswith("//"))
    published = scripts[name].decode()
    assert len(published.split("\n", 1)[-1]) < len(source)
    assert SAID.search(code)
    assert all(text in published for text in SAID.findall(code))
    assert source.splitlines()[0].removeprefix("// ") not in published
