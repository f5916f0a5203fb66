"""A program explained line by line: each note, and where its line stands in the listing."""

from __future__ import annotations

import re
from collections.abc import Sequence

from markupsafe import Markup

from generator.content.exhibit import CodeNote, Listing
from generator.content.listed_code import listed
from generator.content.typesetting import parted
from generator.evidence.folio import Folio
from generator.pages.views.highlighting import highlighted

# Before a name that follows a dot or a bracket, in the text and in no tag.
_JOINT = re.compile(r"(?<=\w)([.(])(?=[A-Za-z_])(?![^<]*>)")
_NAME = re.compile(r"\w+(?![^<]*>)")
WHOLE = 29  # letters of a name that stays whole in a line of code


def notes(
    program: Listing, written: Sequence[CodeNote], folio: Folio
) -> list[tuple[int, Markup, Markup]]:
    """The notes on a program: the number of a line from 1, the line, and what it does."""
    text = listed(folio.book.root, program.path, program.object)
    lines = [line.strip() for line in text.splitlines()]
    return [
        (
            1 + lines.index(note.code.strip()),
            _breakable(highlighted(note.code.strip()).strip()),
            folio.line(note.says),
        )
        for note in written
    ]


def _breakable(code: Markup) -> Markup:
    """A line of code with places where a narrow page may break it."""
    joined = _JOINT.sub(r"\1<wbr>", str(code))
    return Markup(_NAME.sub(lambda name: parted([name[0]], WHOLE), joined))
