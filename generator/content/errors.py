"""Errors that a person can fix, each with the file, line and column to look at."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def one_line(text: str) -> str:
    """A message as one line, whatever it quotes."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


class ContentError(ValueError):
    """One mistake in what an author wrote, or in a trace.

    Args:
        file: from the project's root, as people type it.
        line: from 1; 0 where the whole file is meant.
        column: from 1; 0 where the whole line is meant.
        message: what is wrong and, where it can be known, the fix; made one line.
    """

    def __init__(self, file: str, line: int, column: int, message: str) -> None:
        self.file = one_line(file)
        self.line = line
        self.column = column
        self.message = one_line(message)
        super().__init__(self.message)

    def __str__(self) -> str:
        place = self.file
        if self.line:
            place += f":{self.line}" + (f":{self.column}" if self.column else "")
        return f"{place}: {self.message}" if place else self.message


def place_of(text: str, index: int) -> tuple[int, int]:
    """Line and column, from 1, of a character of a text."""
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


class ContentErrors(ValueError):  # noqa: N818 - many of them
    """Every mistake at once, sorted by file, line and column."""

    def __init__(self, errors: Iterable[ContentError]) -> None:
        self.errors = sort_errors(errors)
        super().__init__("\n".join(str(error) for error in self.errors))


def sort_errors(errors: Iterable[ContentError]) -> list[ContentError]:
    """The errors by file, line and column, each once."""
    unique = {(one.file, one.line, one.column, one.message): one for one in errors}
    return [unique[key] for key in sorted(unique)]


def near(word: str, known: Iterable[str]) -> str | None:
    """The known word that another was probably meant to be."""
    return next(iter(difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)), None)


def nearest(word: str, known: Iterable[str]) -> str:
    """The hint `; did you mean 'stem'?`, or what is known where nothing is near."""
    names = sorted(known)
    close = near(word, names)
    if close:
        return f"; did you mean {close!r}?"
    if 0 < len(names) <= 12:
        return "; known: " + ", ".join(names)
    return ""
