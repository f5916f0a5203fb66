"""The book on disk: every file that a site is built from, written only where its bytes changed.

A book in; `site/pages/` out, which then holds exactly the pages, the assets and the raw traces.
A page that no book makes any more is deleted; files that begin with a dot stay.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, get_args

from rjsmin import jsmin  # type: ignore[import-untyped]

from generator import rerun, sifting
from generator.book import Book
from generator.claim import Verdict
from generator.press import SIFT, Press
from generator.views.claims import STANDINGS
from generator.views.folio import interface_words

ASSETS = Path(__file__).resolve().parent / "assets"
SPEAKING = "assets/proofbook.js"
VENDORED = "iframe-worker"


class Change(NamedTuple):
    """How many files a folder gained, lost and kept."""

    num_written: int
    num_deleted: int
    num_kept: int


class Seen(NamedTuple):
    """A file as it was when it last held these bytes."""

    content: bytes
    changed: int
    num_bytes: int


class Published(NamedTuple):
    """What became of a folder, and what a rerun changed in it: one line each."""

    change: Change
    rerun: list[str]


def publish(
    book: Book,
    content: Path,
    folder: Path,
    press: Press | None = None,
    seen: dict[str, Seen] | None = None,
) -> Published:
    """Bring a folder to a book.

    Args:
        book: what pages are made from.
        content: its folder.
        folder: where the pages go.
        press: what has printed an earlier book; a new one prints everything.
        seen: how files of the folder were left before; see `bring_to`.

    Raises:
        ContentErrors: a text of the book has a mistake.
        OSError: the disk refused, and no file is torn; or the folder holds the content, of which
            nothing would be left.
    """
    if content.resolve().is_relative_to(folder.resolve()):
        raise OSError(errno.EINVAL, "pages may not stand where the content is", str(folder))
    press = press or Press()
    files = site_files(book, content, press)
    change = bring_to(folder, files, seen)
    traces = {name: held for name, held in files.items() if name.startswith("traces/")}
    return Published(change, rerun.told(folder, press.judged(book).evidence, traces))


def site_files(book: Book, content: Path, press: Press | None = None) -> dict[str, bytes]:
    """Every file of `site/pages/`, by its path there: pages, assets, raw traces.

    Args:
        book: what pages are made from.
        content: its folder.
        press: what has printed an earlier book; a new one prints everything.

    Raises:
        ContentErrors: a text of the book has a mistake.
    """
    files = (press or Press()).printed(book)
    for path in sorted(ASSETS.rglob("*")):
        if path.is_file():
            files[f"assets/{path.relative_to(ASSETS).as_posix()}"] = _asset(path)
    files[SIFT] = sifting.css(
        [topic.id for topic in book.topics], len(book.machines), [*get_args(Verdict), *STANDINGS]
    ).encode()
    files[SPEAKING] = words_for_scripts(interface_words()["script"]) + files[SPEAKING]
    for name, trace in sorted(raw_traces(book, content).items()):
        files[name] = trace.read_bytes()
    return files


def raw_traces(book: Book, content: Path) -> dict[str, Path]:
    """The raw traces that pages link, by their path under the site's root."""
    measured = {
        (folder, experiment) for folder, one in book.machines.items() for experiment in one.traces
    }
    return {
        f"traces/{folder}/{experiment}.json": content / "traces" / folder / f"{experiment}.json"
        for folder, experiment in sorted(measured)
    }


def _asset(path: Path) -> bytes:
    """A file as pages load it: scripts of ours without comments and idle space."""
    if path.suffix != ".js" or path.name.startswith(VENDORED):
        return path.read_bytes()
    return _lean(path.read_text(encoding="utf-8"))


@lru_cache(maxsize=32)
def _lean(script: str) -> bytes:
    return str(jsmin(script)).encode()


def words_for_scripts(words: Mapping[str, object]) -> bytes:
    """The interface's words as the first line of the script that all others come after."""
    told = json.dumps({"words": words}, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return b"window.proofbook=" + told.replace("<", r"\u003c").encode() + b";\n"


def bring_to(
    folder: Path, files: Mapping[str, bytes], seen: dict[str, Seen] | None = None
) -> Change:
    """Make a folder hold these files and, but for dotfiles, nothing else; equal bytes stay.

    Args:
        folder: where they go.
        files: their bytes, by path under the folder.
        seen: how files of this folder were found or left before, kept up here; one that nobody
            has touched since is not read again.

    Raises:
        OSError: the disk refused; each file then is either the old one or the new one.
    """
    seen = {} if seen is None else seen
    written = 0
    for name, content in files.items():
        path = folder / name
        if _is_as_seen(path, content, seen.get(name)):
            continue
        if not path.is_file() or path.read_bytes() != content:
            _replace(path, content)
            written += 1
        now = path.stat()
        seen[name] = Seen(content, now.st_mtime_ns, now.st_size)
    return Change(written, _delete_others(folder, files), len(files) - written)


def _is_as_seen(path: Path, content: bytes, before: Seen | None) -> bool:
    if before is None or before.content != content:
        return False
    try:
        now = path.stat()
    except FileNotFoundError:
        return False
    return (now.st_mtime_ns, now.st_size) == (before.changed, before.num_bytes)


def _delete_others(folder: Path, files: Mapping[str, bytes]) -> int:
    deleted = 0
    for path in sorted(folder.rglob("*"), reverse=True):
        inside = path.relative_to(folder)
        if inside.as_posix() in files or any(part.startswith(".") for part in inside.parts):
            continue
        if path.is_file() or path.is_symlink():
            path.unlink()
            deleted += 1
        elif not any(path.iterdir()):
            path.rmdir()
    return deleted


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
