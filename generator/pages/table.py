"""What stands in tables beside values, and a table whose runs are all of one nature.

A view gives a table as rows of cells; `macros/tables.j2` prints it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from markupsafe import Markup

from generator.evidence.folio import REFERENCE, interface_words

_TABLE = re.compile(r'<table class="pb-table(?:(?!<table\b|<caption).)*?</table>', re.DOTALL)
_NATURE = re.compile(r' <small class="pb-nature">([^<]*)</small>')
_UNMARKED = re.compile(r'class="pb-value pb-(?:measured|simulated)[^>]*>[^<]*</a>')
LEAST = 2  # marks in a table that repeat themselves

Row = Sequence[Markup | str]  # the first cell heads it


def label(text: str) -> Markup:
    """Words or a number that carry no provenance."""
    return Markup('<span class="pb-label">{}</span>').format(text)


def counted(number: int) -> Markup:
    """A number that the generator counted."""
    return Markup('<span class="pb-label" title="{}">{}</span>').format(
        interface_words()["evidence"]["counted"], number
    )


def marked_once(html: str) -> str:
    """A table whose runs are all of one nature, such as *simulated*, says so once, not in cells."""
    return _TABLE.sub(lambda found: _marked_once(found[0]), html)


def _marked_once(table: str) -> str:
    marks = _NATURE.findall(table)
    if len(marks) < LEAST or len({*marks}) > 1 or _UNMARKED.search(table):
        return table
    if REFERENCE in marks[0]:  # another machine's: each number says so itself
        return table
    start = table.index(">") + 1
    said = f'<small class="pb-nature">The runs of this table are {marks[0]}.</small>'
    return f"{table[:start]}<caption>{said}</caption>{_NATURE.sub('', table[start:])}"
