"""Files of content/, as authors and editors leave them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from generator.content.errors import ContentError, ContentErrors
from runners.traces.files import TraceError

ReadT = TypeVar("ReadT")


def found_in(folder: Path, pattern: str) -> list[Path]:
    """What a pattern finds, by name, but for what an editor or a writer hides behind a dot."""
    found = (path for path in folder.glob(pattern) if not path.name.startswith("."))
    return sorted(found, key=lambda path: path.with_suffix(""))


@dataclass
class Files:
    """The files of one content folder; what is wrong with any of them is kept, not raised."""

    content: Path
    errors: list[ContentError] = field(default_factory=list)

    def name(self, path: Path) -> str:
        """A file as messages name it."""
        return path.relative_to(self.content.parent).as_posix()

    def refuse(self, path: Path, message: str) -> None:
        """Keep a mistake of a whole file."""
        self.errors.append(ContentError(self.name(path), 0, 0, message))

    def trying(self, read_one: Callable[[Path], ReadT], path: Path) -> ReadT | None:
        """What is read from a file, or from a folder that it is looked for in; None if refused."""
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
        """The text of a file, without a byte-order mark.

        Raises:
            ContentErrors: it cannot be read, or is not UTF-8.
        """
        try:
            return path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            message = f"cannot be read: {error}; save it as UTF-8"
            raise ContentErrors([ContentError(self.name(path), 0, 0, message)]) from None
