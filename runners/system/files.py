"""Write files whole or not at all: a reader sees the old file or the new one. No torch."""

import ctypes
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

_FROM_HERE, _EXCHANGE = -100, 2  # of renameat2
TORN = ".torn"  # ends the name of a file that is being written, or was when somebody was killed


def write_text(path: Path, text: str) -> None:
    """Write a text atomically, with the folders above it; OSError leaves nothing behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid4().hex}{TORN}")  # others may write it too
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write JSON as `write_text`, sorted and indented; ValueError where a number is not finite."""
    write_text(path, json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n")


def put_in_place(folder: Path, place: Path) -> None:
    """Let a folder take the place of another in one move, and remove that.

    Where the system cannot exchange two folders, there is none in the place for a moment.
    """
    exchange = getattr(ctypes.CDLL(None), "renameat2", None)
    ends = (_FROM_HERE, bytes(folder), _FROM_HERE, bytes(place))
    if exchange is None or exchange(*ends, _EXCHANGE):
        if place.exists():
            former = folder.with_name(f"{folder.name}-former")
            place.rename(former)
            folder.rename(place)
            former.rename(folder)
        else:
            folder.rename(place)
    shutil.rmtree(folder, ignore_errors=True)


def states(*tops: Path) -> Iterator[tuple[Path, tuple[int, int]]]:
    """Yield each file there, or below, with its time and size; none whose name begins with a dot.

    Folders whose names begin with an underscore, such as caches of Python's, are left out.
    """
    paths = [*tops]
    for top in tops:
        for folder, folders, names in os.walk(top):
            folders[:] = [name for name in folders if name[0] not in "._"]
            paths += [Path(folder, name) for name in names if name[0] != "."]
    for path in paths:
        if path.is_file():  # not a link that leads nowhere, as editors leave
            yield path, (path.stat().st_mtime_ns, path.stat().st_size)
