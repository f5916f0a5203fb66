"""Payloads as bars over one axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from generator.figures.axes import BELOW, GAP, Scale, across
from generator.figures.drawing import LINE, Drawing, Layout, text_width, wrapped

THICK = 14  # of a bar
ROW = 25  # from bar to bar where labels stand beside them
APART = 10  # between groups, more than between bars
LABELS = 8  # between a bar and the next one's words above it


@dataclass(frozen=True)
class Bar:
    """One bar: `size` in the unit of the axis, `words` behind it, rows of a `group` together."""

    group: str
    label: str
    size: float
    words: str
    say: str = ""  # the row in words


def bars(rows: Sequence[Bar], unit: str, top: float, layout: Layout) -> Drawing:
    """Draw the bars.

    Args:
        rows: from top to bottom, sizes in `unit`.
        unit: title of the axis, as in "MiB per step".
        top: the largest size of all states of a figure, so that they have the same axis.
        layout: the room there is.
    """
    drawing = Drawing(layout.width)
    x = _scale(rows, top * 1.02 or 1, layout)
    y, group = 4.0, rows[0].group
    for row in rows:
        y, group = y + APART * (row.group != group), row.group
        if layout.labels_above:
            words = " · ".join(filter(None, (row.label, row.words)))
            for line in wrapped(words, layout.width):
                drawing.word(0, y + LINE / 2, line)
                y += LINE
        else:
            drawing.word(x.start - GAP, y + THICK / 2, row.label, anchor="end")
            drawing.word(x(row.size) + GAP, y + THICK / 2, row.words)
        say = row.say or f"{row.label}: {row.words}"
        drawing.box(x.start, y, x(row.size) - x.start, THICK, "communication", say=say)
        y += THICK + LABELS if layout.labels_above else ROW
    bottom = y + THICK + 8 - (THICK + LABELS if layout.labels_above else ROW)
    across(drawing, x, bottom, unit, x.ticks(4 if layout.labels_above else 6))
    drawing.height = bottom + BELOW
    return drawing


def _scale(rows: Sequence[Bar], top: float, layout: Layout) -> Scale:
    """From zero to the top, with room for the words at both ends of each bar."""
    if layout.labels_above:
        return Scale(0, top, 1, layout.width - 1)
    left = max(text_width(row.label) for row in rows) + GAP
    end = layout.width - 2.0
    for row in rows:
        words = text_width(row.words) + GAP + 2
        end = min(end, left + (layout.width - left - words) * top / row.size if row.size else end)
    return Scale(0, top, left, end)
