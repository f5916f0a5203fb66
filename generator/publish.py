"""The book on disk: every file that a site is built from, written only where its bytes changed.

A book in; `site/pages/` out, which then holds exactly the pages, the assets and the raw traces.
A page that no book makes any more is deleted; files that begin with a dot stay.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rjsmin import jsmin  # type: ignore[import-untyped]

from generator.book import Book
from generator.views.folio import interface_words

ASSETS = Path(__file__).resolve().parent / "assets"
SPEAKING = "assets/proofbook.js"
VENDORED = "iframe-worker"


class Change(NamedTuple):
    """How many files a folder gained, lost and kept."""

    num_written: int
    num_deleted: int
    num_kept: int


def site_files(book: Book, content: Path) -> dict[str, bytes]:
    """Every file of `site/pages/`, by its path there: pages, assets, raw traces.

    Raises:
        ContentErrors: a text of the book has a mistake.
    """
    from generator import pages

    files = {path: text.encode() for path, text in pages.render(book).items()}
    for path in sorted(ASSETS.rglob("*")):
        if path.is_file():
            files[f"assets/{path.relative_to(ASSETS).as_posix()}"] = _asset(path)
    files[SPEAKING] = words_for_scripts(interface_words()["script"]) + files[SPEAKING]
    for name, trace in sorted(pages.raw_traces(book, content).items()):
        files[name] = trace.read_bytes()
    return files


def _asset(path: Path) -> bytes:
    """A file as pages load it: scripts of ours without comments and idle space."""
    if path.suffix != ".js" or path.name.startswith(VENDORED):
        return path.read_bytes()
    return str(jsmin(path.read_text(encoding="utf-8"))).encode()


def words_for_scripts(words: Mapping[str, object]) -> bytes:
    """The interface's words as the first line of the script that all others come after."""
    told = json.dumps({"words": words}, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return b"window.proofbook=" + told.replace("<", r"\u003c").encode() + b";\n"


def bring_to(folder: Path, files: Mapping[str, bytes]) -> Change:
    """Make a folder hold these files and, but for dotfiles, nothing else; equal bytes stay.

    Raises:
        OSError: the disk refused; each file then is either the old one or the new one.
    """
    written = 0
    for name, content in files.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != content:
            _replace(path, content)
            written += 1
    return Change(written, _delete_others(folder, files), len(files) - written)


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
