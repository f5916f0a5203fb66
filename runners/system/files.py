"""Write files whole or not at all: a reader sees the old file or the new one. No torch."""

import json
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

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
