"""The short programs behind retracted sentences: where they lie, and what the build refuses.

A program is a file of `content/retracted/`, and a run of the experiment `repeats` executed it.
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


def path_of(name: str) -> str:
    """The file of a program, from the project's root."""
    return f"content/retracted/{name}.py"


def file_of(name: str) -> str:
    """The file of a program for readers to download, under the site's root."""
    return f"programs/{name}.py"


def problem(book: Book, name: str) -> str | None:
    """Why a sentence cannot stand with this program, or None."""
    if listed_code.text(book.root, path_of(name)) is None:
        folder = book.root / "content" / "retracted"
        known = sorted(path.stem for path in folder.glob("*.py"))
        return f"no file {path_of(name)}{nearest(name, known)}"
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
    """Every program of a file of retractions that cannot stand, or whose model nobody names."""
    described = {one.program for one in evidence.book.retractions.values() if one.uses}
    for position, one in enumerate(document.model.statements):
        found = problem(evidence.book, one.program) if one.program else None
        if one.program and not found and one.program not in described:
            found = f"say under `uses:` which model {path_of(one.program)} has"
        if found:
            yield document.error(("statements", position, "program"), found)
