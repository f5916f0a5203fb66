"""A table of a page: its columns and its rows, whichever view made them.

On a phone the cells of a row stand below each other, each behind the title of its column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from generator.evidence.folio import interface_words
from generator.evidence.provenance import REFERENCE

_TABLE = re.compile(r'<table class="pb-table(?:(?!<table\b|<caption).)*?</table>', re.DOTALL)
_ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
_CELL = re.compile(r"<t[hd]\b.*?</t[hd]>", re.DOTALL)
_NATURE = re.compile(r' <small class="pb-nature">([^<]*)</small>')
_FOUND = re.compile(r'class="pb-value pb-(?:measured|simulated|computed)')
LEAST_ROWS = 2  # of a table in which a mark in each would repeat itself

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
    """A table whose columns bear one nature, such as *simulated*, says so once and not in cells."""
    return _TABLE.sub(lambda found: _marked_once(found[0]), html)


def _marked_once(table: str) -> str:
    head, *rows = _ROW.findall(table)
    columns = list(zip(*map(_CELL.findall, rows), strict=False))
    measured = [list(filter(_FOUND.search, column)) for column in columns]
    natures = {mark for column in columns for cell in column for mark in _NATURE.findall(cell)}
    alike = [bool(cells) and all(map(_NATURE.search, cells)) for cells in measured]
    if len(natures) != 1 or len(rows) < LEAST_ROWS or not any(alike) or "span=" in table:
        return table
    if REFERENCE in next(iter(natures)):  # another machine's: each number says so itself
        return table
    is_whole = all(one or not cells for one, cells in zip(alike, measured, strict=True))
    (nature,) = natures
    titles = [Markup(one).striptags() for one in _CELL.findall(head)]
    named = [one for one, is_alike in zip(titles, alike, strict=True) if is_alike]
    others = dict.fromkeys(one for one in named if one.casefold() != nature)
    words = interface_words()["table"]["of_runs" if is_whole else "of_runs_in"]
    said = words.format(nature=nature, columns=" and ".join(f"“{one}”" for one in others))
    caption = f'<caption><small class="pb-nature">{said}</small></caption>'
    if not is_whole and not others:  # the title of the column says it
        caption = ""

    def row(found: re.Match[str]) -> str:
        at = iter(alike)
        return _CELL.sub(lambda cell: _bare(cell[0]) if next(at) or is_whole else cell[0], found[0])

    start = table.index(">") + 1
    return table[:start] + caption + _ROW.sub(row, table[start:])


def _bare(cell: str) -> str:
    return _NATURE.sub("", cell)
