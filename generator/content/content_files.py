"""Files of content/: what cannot be read is a `FileError` that says why, and where in the text."""

from __future__ import annotations

from pathlib import Path


class FileError(ValueError):
    """A file that cannot be read; the message says why and what to do, without its name.

    Args:
        message: what is wrong.
        line: from 1, where the mistake stands in the text; 0 where the whole file is meant.
        column: from 1; 0 likewise.
    """

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


def found_in(folder: Path, pattern: str) -> list[Path]:
    """What a pattern finds, sorted, but for what an editor or a writer hides behind a dot."""
    return sorted(path for path in folder.glob(pattern) if not path.name.startswith("."))


def content_of(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        FileError: it is something else, or the disk refused.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror}") from None


def text_of(path: Path) -> str:
    """The text of a file, without a byte-order mark.

    Raises:
        FileError: as `content_of`, or it is not UTF-8; the error then knows the line.
    """
    held = content_of(path)
    try:
        return held.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = held[: error.start].decode("utf-8-sig")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        message = f"cannot be read: not UTF-8 (byte 0x{held[error.start]:02x}); save it as UTF-8"
        raise FileError(message, line, column) from None
