"""Columns of a table: a unit that all its numbers have stands once, in the head."""

import re

from markupsafe import Markup

from generator.values.units import SCALES
from runners.core.trace.fields import NBSP

_ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
_CELL = re.compile(r"<(t[hd])\b[^>]*>.*?</\1>", re.DOTALL)
_UNITS = "|".join(re.escape(name) for sizes in SCALES.values() for name, _ in sizes)
# The last words of a cell: a digit, its unit, and what closes.
_UNIT = re.compile(rf"(?<=\d)(?:{NBSP}(?P<size>{_UNITS})|(?P<share>%))(?=(?:</\w+>)+\Z)")
_TAG = re.compile(r"<[^>]+>")
_EMPTY = ("", "–")


def with_units(table: Markup) -> Markup:
    """A table's HTML; a unit common to a column moves from its cells into the head.

    A cell that spans several columns would shift those after it, so its table stays as it is.
    """
    if "colspan=" in table:
        return table
    rows = [list(_CELL.finditer(row[0])) for row in _ROW.finditer(table)]
    head, *body = rows or [[]]
    units = [_common([row[at][0] for row in body if at < len(row)]) for at in range(len(head))]

    def without_units(row: re.Match[str]) -> str:
        at, is_head = -1, row.start() < table.find("</thead>")

        def cell(match: re.Match[str]) -> str:
            nonlocal at
            at += 1
            unit = units[at] if at < len(units) else ""
            if not unit:
                return match[0]
            end = f", {unit}</th>"
            return match[0].removesuffix("</th>") + end if is_head else _UNIT.sub("", match[0])

        return _CELL.sub(cell, row[0])

    return Markup(_ROW.sub(without_units, table))


def _common(cells: list[str]) -> str:
    """The unit of all these cells, or nothing where one has another, none, or more words."""
    written = [cell for cell in cells if _TAG.sub("", cell).strip() not in _EMPTY]
    if not all("pb-number" in cell.partition(">")[0] for cell in written):
        return ""
    units = {
        match["size"] or match["share"] if (match := _UNIT.search(cell)) else "" for cell in written
    }
    return units.pop() if len(units) == 1 else ""
