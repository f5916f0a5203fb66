"""A press prints a whole book, and then the pages of the files that an author edits."""

import json
import re
import subprocess
import sys

import pytest

from proofbook.generator.content.errors import ContentErrors
from proofbook.generator.pages import compose as printing
from proofbook.generator.pages.press import EVERYTHING, Press
from proofbook.generator.website import publish
from proofbook.generator.website.publish import sync_folder

LESSON = "topics/averaging/learn.yml"
LEARN = f"content/{LESSON}"


@pytest.fixture
def counted(monkeypatch):
    """The paths of the pages that were really printed."""
    paths = []

    def count(sheet, gathered):
        paths.append(sheet.path)
        return printing.printed(sheet, gathered)

    monkeypatch.setattr("proofbook.generator.pages.press.printed", count)
    monkeypatch.setattr("proofbook.generator.pages.press.num_cores", lambda: 1)  # in this process
    return paths


@pytest.mark.parametrize(
    ("files", "under"),
    [
        ([], ()),
        (["content/topics/a/quiz.yml", LEARN], ("topics/a/", "topics/averaging/learn.md")),
        (["content/pages/about.md"], ("about.md",)),
        (["content/pages/photo.png"], EVERYTHING),
        (["content/topics/averaging/code/mean.py"], EVERYTHING),  # a run may now be stale
        (["content/claims/tiny_memory.yml", LEARN], EVERYTHING),
        (["generator/pages/page.py"], EVERYTHING),
    ],
)
def test_a_changed_file_changes_its_page_its_topic_or_everything(copy, files, under):
    assert Press().pages_of(files, copy.load()) == under


# Edits, and of a word that pages show, which are all printed and no others: how many at most.
EDITS = [
    (LESSON, "title: ", "title: Once more ", None),
    ("topics/sharding/quiz.yml", "It asked for", "It had asked for", None),
    ("glossary.yml", "term: ", "term: so-called ", None),
    ("topics/asking/topic.yml", "title: ", "title: Once more ", None),
    ("glossary.yml", "definition: ", "definition: Say ", 1),
    ("guide.yml", "tell: ", "tell: Say ", 3),
    ("misconceptions.yml", "belief: ", "belief: Say ", 4),  # in a few lessons
    ("references.yml", "title: ", "title: Say ", 9),  # in a popover of each
    ("site.yml", "about: ", "about: Say ", 4),
    ("statements.yml", "where: ", "where: say ", 1),
]


def test_an_edit_prints_its_pages_as_a_fresh_press_does_and_leaves_the_others(copy, counted):
    press = Press()
    before = press.printed(copy.load())
    for file, old, new, most in EDITS:
        counted.clear()
        copy.edit(file, old, new)
        under = press.pages_of([f"content/{file}"], copy.load())
        after = press.printed(copy.load(), under)
        printed = set(counted)
        assert printed == {path for path in before if path.startswith(under)}, file
        fresh_press = Press()
        fresh = fresh_press.printed(copy.load())
        assert {path: after[path] for path in printed} == {path: fresh[path] for path in printed}
        assert {path for path in after if after[path] != before[path]} <= printed
        assert after != before
        if most:
            assert {path for path in fresh if fresh[path] != before[path]} <= printed
            assert len(printed) <= most < len(before)
        press, before = fresh_press, fresh


def test_a_mistake_of_a_page_is_told_and_the_last_good_pages_stay(copy):
    press = Press()
    before = press.printed(copy.load())
    copy.edit(LESSON, "title: ", "title: 17 ")
    for _ in range(2):
        with pytest.raises(ContentErrors, match="numeral '17'") as told:
            press.printed(copy.load(), press.pages_of([LEARN], copy.load()))
    assert re.match(rf"content/{LESSON}:\d+:\d+: ", str(told.value))
    copy.edit(LESSON, "title: 17 ", "title: ")
    assert press.printed(copy.load(), press.pages_of([LEARN], copy.load())) == before


# Prints a folder on one core; on three; where no process can be forked; where the kernel ends each
# that was. Then four pages have a mistake.
SHARED = """
import os
import signal
import sys
from pathlib import Path
from proofbook.generator.content import reading
from proofbook.generator.content.errors import ContentError, ContentErrors
from proofbook.generator.pages import press

def pages():
    return press.Press().printed(reading.load(Path(sys.argv[1])))

def end_a_fork(sheet, gathered):
    if os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    return of_page(sheet, gathered)

def refuse(sheet, gathered):
    if sheet.mode == "learn":
        told = f"refused in a fork: {os.getpid() != parent}"
        raise ContentErrors([ContentError(sheet.source, 3, 4, told)])
    return of_page(sheet, gathered)

def no_more():
    raise BlockingIOError

parent, of_page, fork = os.getpid(), press.printed, os.fork
press.num_cores = lambda: 1
alone = pages()
press.num_cores, press.FEWEST = lambda: 3, 1
assert pages() == alone
os.fork = no_more
assert pages() == alone
os.fork, press.printed = fork, end_a_fork
assert pages() == alone
press.printed = refuse
try:
    pages()
except ContentErrors as told:
    print(told)
"""


@pytest.mark.builds
@pytest.mark.skipif(sys.platform != "linux", reason="pages are printed by processes on Linux alone")
def test_processes_print_what_one_prints_and_tell_its_mistakes(copy):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SHARED, copy.content], capture_output=True, text=True
    )
    assert done.stderr == ""
    places = {path.relative_to(copy.content).as_posix() for path in copy.content.rglob("learn.yml")}
    assert done.stdout.splitlines() == [
        f"content/{one}:3:4: refused in a fork: True" for one in sorted(places)
    ]


# --- the files of a site: what is written and deleted, and words in front of scripts


BOOK = {"index.md": b"home", "topics/ddp/learn.md": b"lesson"}


def test_what_somebody_else_put_there_is_neither_overwritten_nor_deleted(tmp_path):
    sync_folder(tmp_path, {**BOOK, "topics/fsdp/learn.md": b"lesson"})
    (tmp_path / "topics/fsdp/mine.md").write_bytes(b"mine")
    (tmp_path / "guide.md").write_bytes(b"my guide")
    with pytest.raises(ContentErrors, match=r"guide\.md: .* written by hand; move it to"):
        sync_folder(tmp_path, {**BOOK, "guide.md": b"the book's"})
    home = (tmp_path / "index.md").stat()
    sync_folder(tmp_path, BOOK)
    after = (tmp_path / "index.md").stat()  # whose time of access changes where it is compared
    assert (after.st_ino, after.st_mtime_ns) == (home.st_ino, home.st_mtime_ns)  # is not written
    sync_folder(tmp_path, {"index.md": b"another home"})
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
    assert publish.uncommitted(copy.content) == []
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    copy.append("topics/averaging/quiz.yml", "# edited\n")
    assert publish.uncommitted(copy.content) == []
    told = ["planner/plans/tiny.json", "traces/reference-frozen/tiny_memory.json"]
    for name in told:
        copy.append(name, "\n")
    new = ["traces/reference-frozen/labs.json", "traces/shared/labs.json", "verified/new.json"]
    for name in new:
        (copy.content / name).write_text("{}")
    (copy.content / "traces" / "shared" / ".labs.part").write_text("{}")
    assert publish.uncommitted(copy.content) == sorted([*told, *new])
