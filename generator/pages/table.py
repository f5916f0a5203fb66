"""A table of a page: its columns and its rows, whichever view made them.

On a phone the cells of a row stand below each other, each behind the title of its column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from generator.evidence.folio import REFERENCE, interface_words

_TABLE = re.compile(r'<table class="pb-table(?:(?!<table\b|<caption).)*?</table>', re.DOTALL)
_NATURE = re.compile(r' <small class="pb-nature">([^<]*)</small>')
_UNMARKED = re.compile(r'class="pb-value pb-(?:measured|simulated)[^>]*>[^<]*</a>')
LEAST = 2  # marks in a table that repeat themselves

Cell = Markup | str


class Column(NamedTuple):
    """A column: what it is called, and whether numbers stand in it."""

    title: Cell
    is_number: bool = True


class Marked(NamedTuple):
    """A cell with a class of its own, such as that of a verdict."""

    shown: Cell
    css: str


Row = Sequence[Cell | Marked]


def table(
    columns: Sequence[Column],
    rows: Iterable[Row],
    *,
    is_found: bool = True,
    is_wide: bool = False,
) -> Markup:
    """The table; the first cell of a row heads it.

    Args:
        columns: from the left.
        rows: a cell a column.
        is_found: whether the search finds what stands in it.
        is_wide: whether it takes the free side of a wide screen as well.
    """
    heads = Markup("").join(
        Markup('<th scope="col"{}>{}</th>').format(_classes(column), column.title)
        for column in columns
    )
    body = Markup("").join(_row(columns, row) for row in rows)
    return Markup(
        '<div class="pb-scroll{}" tabindex="0" role="group" aria-label="{}"{}>\n'
        '<table class="pb-table pb-stack pb-rows"><thead><tr>{}</tr></thead>\n'
        "<tbody>\n{}</tbody></table>\n</div>"
    ).format(
        " pb-wider" if is_wide else "",
        interface_words()["table"]["scroll"],
        Markup("") if is_found else Markup(" data-search-exclude"),
        heads,
        body,
    )


def label(text: str) -> Markup:
    """Words or a number that carry no provenance."""
    return Markup('<span class="pb-label">{}</span>').format(text)


def counted(number: int) -> Markup:
    """A number that the generator counted."""
    return Markup('<span class="pb-label" title="{}">{}</span>').format(
        interface_words()["evidence"]["counted"], number
    )


def _row(columns: Sequence[Column], row: Row) -> Markup:
    first, *others = row
    cells = Markup("").join(
        _cell(column, cell) for column, cell in zip(columns[1:], others, strict=True)
    )
    return Markup('<tr><th scope="row">{}</th>{}</tr>\n').format(first, cells)


def _cell(column: Column, cell: Cell | Marked) -> Markup:
    shown, css = cell if isinstance(cell, Marked) else (cell, "")
    title = Markup(column.title).striptags()
    return Markup('<td{} data-label="{}"><span>{}</span></td>').format(
        _classes(column, css), title, shown
    )


def _classes(column: Column, css: str = "") -> Markup:
    found = " ".join(filter(None, ["pb-number" if column.is_number else "", css]))
    return Markup(' class="{}"').format(found) if found else Markup("")


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
