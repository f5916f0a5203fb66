"""Errors that a person can fix, each with the file, line and column to look at, and files.

Files of content/ are read as authors and editors leave them; their mistakes are kept, not raised.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from proofbook.runners.system.errors import near
from proofbook.runners.traces.files import TraceError

ReadT = TypeVar("ReadT")
FEW = 2  # places beside the first that have a line each


def one_line(text: str) -> str:
    """A message as one line, whatever it quotes."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


class ContentError(ValueError):
    """One mistake in what an author wrote, or in a trace; the message says the fix if it can."""

    def __init__(self, file: str, line: int, column: int, message: str) -> None:
        self.file = one_line(file)  # from the project's root, as people type it
        self.line, self.column = line, column  # from 1; 0 where the whole file or line is meant
        self.message = one_line(message)
        super().__init__(file, line, column, message)  # as it was made: processes exchange it

    @property
    def place(self) -> str:
        """The file with the line and the column, as far as they are known."""
        if not self.line:
            return self.file
        return f"{self.file}:{self.line}" + (f":{self.column}" if self.column else "")

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.file else self.message


def place_of(text: str, index: int) -> tuple[int, int]:
    """Line and column, from 1, of a character of a text."""
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


class ContentErrors(ValueError):  # noqa: N818 - many of them
    """Every mistake at once, sorted by file, line and column."""

    def __init__(self, errors: Iterable[ContentError]) -> None:
        self.errors = sort_errors(errors)
        super().__init__("\n".join(_lines_of(self.errors)))


def _lines_of(errors: Iterable[ContentError]) -> Iterator[str]:
    """The errors as lines; one line for what many places of a file have from one cause."""
    alike: dict[tuple[str, str], list[ContentError]] = {}
    for error in errors:
        cause = error.message.rpartition(": ")[2] if error.line else error.message
        alike.setdefault((error.file, cause), []).append(error)
    for first, *others in alike.values():
        if len(others) < FEW:
            yield from map(str, (first, *others))
        else:
            places = ", ".join(other.place.removeprefix(f"{other.file}:") for other in others)
            yield f"{first} (also at {places})"


def sort_errors(errors: Iterable[ContentError]) -> list[ContentError]:
    """The errors by file, line and column, each once."""
    unique = {(error.file, error.line, error.column, error.message): error for error in errors}
    return [unique[key] for key in sorted(unique)]


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a message: `; did you mean 'stem'?`, else the known words; '' if over 12."""
    names = tuple(sorted(known))
    if close := _near(word, names):
        return f"; did you mean {close!r}?"
    return f"; known: {', '.join(names)}" if 0 < len(names) <= 12 else ""


_near = lru_cache(maxsize=4096)(near)  # of an expression that is tried on hundreds of runs


def visible_files(folder: Path, pattern: str) -> list[Path]:
    """Files that match a pattern, sorted by name, without hidden ones."""
    names = {path: path.relative_to(folder).parts for path in folder.glob(pattern)}
    visible = (path for path, parts in names.items() if not any(name[0] == "." for name in parts))
    return sorted(visible, key=lambda path: path.with_suffix(""))


@dataclass
class Files:
    """The files of one content folder; what is wrong with any of them is kept, not raised."""

    content: Path
    errors: list[ContentError] = field(default_factory=list)

    def name(self, path: Path) -> str:
        """A file as messages name it."""
        return path.relative_to(self.content.parent).as_posix()

    def refuse(self, path: Path, message: str) -> None:
        """Add an error about a whole file."""
        self.errors.append(ContentError(self.name(path), 0, 0, message))

    def read_or_refuse(self, read_one: Callable[[Path], ReadT], path: Path) -> ReadT | None:
        """`read_one(path)`; None after its ContentErrors or TraceError, which `errors` keeps."""
        try:
            return read_one(path)
        except ContentErrors as error:
            self.errors += error.errors
        except TraceError as error:
            file, _, message = str(error).partition(": ")
            root = f"{self.content.parent.as_posix()}/"
            self.errors.append(ContentError(file.removeprefix(root), 0, 0, message))
        return None

    def text_of(self, path: Path) -> str:
        """Text of a file without a byte-order mark; ContentErrors if unreadable or not UTF-8."""
        try:
            return path.read_text(encoding="utf-8-sig")
        except OSError as error:
            place, why = (0, 0), error.strerror
        except UnicodeDecodeError as error:
            before = error.object[: error.start].decode()
            place, why = place_of(before, len(before)), "not UTF-8; save it as UTF-8"
        raise ContentErrors([ContentError(self.name(path), *place, f"cannot be read: {why}")])
