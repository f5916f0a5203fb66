"""What the generator may overwrite and delete in a folder: what it wrote there itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

from generator.content.errors import ContentErrors
from generator.website.publish import bring_to
from tests.conftest import ROOT

BOOK = {"index.md": b"home", "topics/ddp/learn.md": b"lesson"}


def held(folder):
    """What a folder holds, without the list of what was written."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".written")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_a_file_that_was_edited_after_it_was_written_is_neither_overwritten_nor_deleted(tmp_path):
    bring_to(tmp_path, BOOK)
    (tmp_path / "index.md").write_bytes(b"edited by hand")
    with pytest.raises(ContentErrors, match=r"index\.md: .* edited by hand; move it to"):
        bring_to(tmp_path, {**BOOK, "index.md": b"another home"})
    change = bring_to(tmp_path, {"topics/ddp/learn.md": b"lesson"})
    assert change.num_deleted == 0
    assert held(tmp_path) == {"index.md": b"edited by hand", "topics/ddp/learn.md": b"lesson"}


def test_a_file_that_holds_what_would_be_written_is_taken_over(tmp_path):
    (tmp_path / "index.md").write_bytes(b"home")
    assert bring_to(tmp_path, BOOK).num_kept == 1
    assert bring_to(tmp_path, {}).num_deleted == 2
    assert held(tmp_path) == {}


def test_folders_that_are_empty_without_the_books_pages_go_and_others_stay(tmp_path):
    bring_to(tmp_path, {**BOOK, "topics/fsdp/learn.md": b"lesson"})
    (tmp_path / "topics" / "fsdp" / "mine.md").write_bytes(b"mine")
    bring_to(tmp_path, {"index.md": b"home"})
    assert held(tmp_path) == {"index.md": b"home", "topics/fsdp/mine.md": b"mine"}
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


def test_pages_of_a_version_that_kept_no_list_are_the_generators(tmp_path):
    for name in BOOK:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"of an older version")
    (tmp_path / ".standing.json").write_text("{}")
    assert bring_to(tmp_path, BOOK).num_written == 2


def test_the_list_is_one_that_sha256sum_reads(tmp_path):
    bring_to(tmp_path, BOOK)
    check = ["sha256sum", "--check", "--quiet", ".written"]
    assert subprocess.run(check, cwd=tmp_path).returncode == 0
    (tmp_path / "index.md").write_bytes(b"edited by hand")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 1


def test_cleaning_a_folder_leaves_what_others_put_there(tmp_path):
    bring_to(tmp_path, BOOK)
    (tmp_path / "topics" / "mine.md").write_bytes(b"mine")
    (tmp_path / "index.md").write_bytes(b"edited by hand")
    clean = [sys.executable, "-S", "-m", "generator.website.manifest", str(tmp_path)]
    assert subprocess.run(clean, cwd=ROOT).returncode == 0
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == ["index.md", "mine.md"]
