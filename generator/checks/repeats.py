"""The short programs behind retracted sentences: where they lie, and what the build refuses.

A program is a file of `content/retracted/`, at most twenty lines that are not blank, and a run of
the experiment `repeats` executed it as it stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from generator.content import listed_code
from generator.content.documents import Document
from generator.content.errors import ContentError, nearest

if TYPE_CHECKING:
    from generator.content.book import Book
    from generator.evidence.evaluation import Evidence

EXPERIMENT = "repeats"
MAX_LINES = 20


def path_of(name: str) -> str:
    """The file of a program, from the project's root."""
    return f"content/retracted/{name}.py"


def file_of(name: str) -> str:
    """The file of a program for readers to download, under the site's root."""
    return f"programs/{name}.py"


def problem(book: Book, name: str) -> str | None:
    """Why a sentence cannot stand with this program, or None."""
    text = listed_code.text(book.root, path_of(name))
    if text is None:
        folder = book.root / "content" / "retracted"
        known = sorted(path.stem for path in folder.glob("*.py"))
        return f"no file {path_of(name)}{nearest(name, known)}"
    num_lines = sum(bool(line.strip()) for line in text.splitlines())
    if num_lines > MAX_LINES:
        return f"{path_of(name)} has {num_lines} lines; at most {MAX_LINES} are read at a glance"
    run = book.run(f"{EXPERIMENT}.{name}")
    if run is None:
        return (
            f"no run {EXPERIMENT}.{name} executed it; "
            f"run `python -m runners run {EXPERIMENT} --full`"
        )
    if run.settings.get("program") != path_of(name):
        return f"{EXPERIMENT}.{name} executed {run.settings.get('program')}, not this file"
    return None


def mistakes(evidence: Evidence, document: Document[Any]) -> Iterator[ContentError]:
    """Every program of a file of retractions that cannot stand, and every `uses:` that misleads."""
    said: dict[str | None, str] = {}
    for one in evidence.book.retractions.values():
        if one.program and one.uses:
            said.setdefault(one.program, one.uses)
    for position, one in enumerate(document.model.retractions):
        found = problem(evidence.book, one.program) if one.program else None
        if one.program and not found and one.program not in said:
            found = f"say under `uses:` which model {path_of(one.program)} has"
        if found:
            yield document.error(("retractions", position, "program"), found)
        if one.uses and one.uses != said.get(one.program):
            found = (
                f"another sentence says of {path_of(one.program)}: {said[one.program]}; say it once"
                if one.program
                else "uses: needs program:, the program whose model it names"
            )
            yield document.error(("retractions", position, "uses"), found)
