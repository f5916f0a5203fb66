"""A program explained line by line: each note, and where its line stands in the listing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from generator.content.exhibit import CodeNote, Listing
from generator.content.listed_code import source
from generator.evidence.folio import Folio
from generator.pages.views.highlighting import highlighted


@dataclass(frozen=True)
class NoteOnPage:
    """One line of a program and what it does; lines count from 1."""

    number: int
    code: Markup
    says: Markup


def notes(program: Listing, written: Sequence[CodeNote], folio: Folio) -> list[NoteOnPage]:
    """The notes on a program, in the order written."""
    text = source(folio.book.root, program.path, program.object)
    lines = [line.strip() for line in text.splitlines()]
    return [
        NoteOnPage(
            number=1 + lines.index(note.code.strip()),
            code=highlighted(note.code.strip()).strip(),
            says=folio.line(note.says),
        )
        for note in written
    ]
