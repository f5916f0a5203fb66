"""Which files of a folder the generator wrote: only those may it overwrite or delete.

The list stands beside the pages in `.written`, a digest and a path a line, as `sha256sum` prints
them: `cd site/pages && sha256sum --check .written`. A file that somebody edited afterwards has
another digest, so it is no longer the generator's.

    python -m generator.manifest site/pages     delete what the list names, and the list
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

NOTE = ".written"  # MkDocs leaves out files that begin with a dot

Entry = tuple[str, str]  # a path under the folder, and the digest of what was written there


def digest(content: bytes) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def read(folder: Path) -> set[Entry]:
    """What the list of a folder names; nothing where there is no list."""
    try:
        lines = (folder / NOTE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return set()
    return {(path, found) for found, _, path in (line.partition("  ") for line in lines) if path}


def text(entries: Iterable[Entry]) -> bytes:
    """The list as a file, sorted by path."""
    return "".join(f"{found}  {path}\n" for path, found in sorted(entries)).encode()


def unchanged(folder: Path, entries: Iterable[Entry]) -> Iterator[str]:
    """Those paths of a list whose files still hold what was written there."""
    for path, found in sorted(entries):
        file = folder / path
        if file.is_file() and not file.is_symlink() and digest(file.read_bytes()) == found:
            yield path


def delete(folder: Path, paths: Iterable[str]) -> int:
    """Delete files, and the folders that are then empty; returns how many files."""
    deleted = 0
    for path in paths:
        (folder / path).unlink()
        deleted += 1
        for parent in (folder / path).parents:
            if parent == folder or any(parent.iterdir()):
                break
            parent.rmdir()
    return deleted


if __name__ == "__main__":
    at = Path(sys.argv[1])
    delete(at, unchanged(at, read(at)))
    (at / NOTE).unlink(missing_ok=True)
