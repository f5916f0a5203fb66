"""Files of content/: plain files that lie in it are read whole, everything else is refused.

In: a path that a loader found under a folder. Out: its bytes or its text, or a `FileError` that
says what the path is instead. No link leads out of the folder, so a clone shows what its author
saw; no pipe, socket or device is opened for reading, because its end may never come.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

MAX_BYTES = 2_000_000  # of a text; the longest of the book has fifty thousand
MAX_IMAGE_BYTES = 20_000_000
_LEADS_OUT = "a link that leads out of {folder}/; put a copy in its place"
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


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


def problem(path: Path, folder: Path) -> str | None:
    """Why what stands at a path is no plain file inside a folder, or None.

    Args:
        path: where it was found.
        folder: the folder that it must lie in; resolved.
    """
    try:
        found = path.resolve(strict=True)
        kind = stat.S_IFMT(found.stat().st_mode)
    except (OSError, RuntimeError) as error:
        return _unreachable(path, error)
    if not found.is_relative_to(folder):
        return _LEADS_OUT.format(folder=folder.name)
    if kind != stat.S_IFREG:
        return f"{_KINDS.get(kind, 'no file')}, not a file; delete or rename it"
    return None


def _unreachable(path: Path, error: Exception) -> str:
    if path.is_symlink():
        return "a link that leads nowhere; delete it, or put the file in its place"
    return f"cannot be read: {getattr(error, 'strerror', None) or error}"


def stands(path: Path) -> bool:
    """Whether anything stands at a path, be it a link that leads nowhere."""
    return path.is_symlink() or path.exists()


def found_in(folder: Path, pattern: str) -> list[Path]:
    """What a pattern finds, sorted, but for what an editor or a writer hides behind a dot."""
    return sorted(path for path in folder.glob(pattern) if not path.name.startswith("."))


def strange(folder: Path) -> Iterator[tuple[Path, str]]:
    """Everything below a folder that is neither a folder nor a plain file in it, and why.

    Args:
        folder: resolved. What begins with a dot is left out.
    """
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        links = [name for name in folders if (Path(where) / name).is_symlink()]
        for name in links:
            found = _linked_folder(Path(where) / name, folder)
            if found:
                yield Path(where) / name, found
        for name in sorted(name for name in files if not name.startswith(".")):
            path = Path(where) / name
            found = None if _is_plain(path) else problem(path, folder)
            if found:
                yield path, found


def _is_plain(path: Path) -> bool:
    """Whether a path is a file itself, no link; the walk that found it followed none either."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _linked_folder(path: Path, folder: Path) -> str | None:
    found = path.resolve()
    if not found.is_relative_to(folder):
        return _LEADS_OUT.format(folder=folder.name)
    if path.is_relative_to(found):
        return "a link to a folder that it stands in; delete it"
    return None


def content_of(path: Path, folder: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """The bytes of a plain file inside a folder.

    Raises:
        FileError: it is something else, lies elsewhere, is too large, or the disk refused.
    """
    found = problem(path, folder)
    if found:
        raise FileError(found)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            held = file.read(max_bytes + 1)
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror}") from None
    if len(held) > max_bytes:
        raise FileError(f"longer than {max_bytes:,} bytes; split it")
    return held


def text_of(path: Path, folder: Path) -> str:
    """The text of a plain file inside a folder, without a byte-order mark.

    Raises:
        FileError: as `content_of`, or it is not UTF-8; the error then knows the line.
    """
    held = content_of(path, folder)
    try:
        return held.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = held[: error.start].decode("utf-8-sig")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        byte = held[error.start]
        message = f"cannot be read: not UTF-8 (byte 0x{byte:02x}); save the file as UTF-8"
        raise FileError(message, line, column) from None
