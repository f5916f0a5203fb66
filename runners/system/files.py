"""Write files whole or not at all: a reader sees the old file or the new one. No torch."""

import ctypes
import json
import os
import shutil
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
    """Let a folder take the place of another in one move; other systems than Linux need two."""
    exchange = getattr(ctypes.CDLL(None), "renameat2", lambda *_: -1)
    if exchange(_FROM_HERE, bytes(folder), _FROM_HERE, bytes(place), _EXCHANGE):
        shutil.rmtree(place, ignore_errors=True)
        folder.rename(place)
    shutil.rmtree(folder, ignore_errors=True)
