"""Bars of several parts under a budget line that readers move: what a rank holds at its peak.

The line runs behind the bars, one stroke for each, and every look of a part hides it, so that it
crosses no words: these stand on the bars, at the side or above. The group around the strokes says
how far they may go; play.js moves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from generator.figures.axes import BELOW, GAP, Scale, across
from generator.figures.drawing import LINE, Drawing, Layout, number, text_width

# Parts in their order, each with its look and the colour of a letter on it.
LOOKS = (
    ("series-a", "ground"),
    ("series-e", "ground"),
    ("series-a faint", ""),
    ("series-e faint", ""),
    ("series-b", "ground"),
    ("series-c hollow", ""),
    ("series-e hollow shard", ""),
)
THICK, ROW, APART, SWATCH = 18, 27, 9, 16
BESIDE = 14  # from the end of the axis to the words
LEAST = 0.3  # of a part, in pixels: what is narrower stands in the table alone
OVER = 4  # how far the line stands out of a bar, but not into words above it


@dataclass(frozen=True)
class Part:
    """A part of a bar: which of all parts it is, its size in the unit of the axis, its words."""

    kind: int
    name: str
    size: float
    say: str


@dataclass(frozen=True)
class Stack:
    """A bar: rows of a `group` stand together; `words` tells its sum."""

    group: str
    label: str
    parts: tuple[Part, ...]
    words: str

    @property
    def size(self) -> float:
        """The sum of the parts."""
        return sum(part.size for part in self.parts)


def stacks(
    rows: Sequence[Stack],
    names: Sequence[str],
    unit: str,
    top: float,
    budget: float,
    layout: Layout,
) -> Drawing:
    """Draw the bars.

    Args:
        rows: from top to bottom, in `unit`.
        names: of all kinds of parts, for the legend.
        unit: title of the axis, as in "MiB per rank".
        top: the end of the axis, the same for all states of a figure.
        budget: where the line starts.
        layout: the room there is.
    """
    drawing = Drawing(layout.width)
    left, room = 1.0, 1.0
    if not layout.labels_above:
        left = max(text_width(row.label) for row in rows) + GAP
        said = [f"{row.words} · {word}" for row in rows for word in ("fits", "over")]
        room = max(map(text_width, said)) + BESIDE + GAP
    x = Scale(0, top, left, layout.width - room)
    y = _legend(drawing, rows, names)
    uppers: list[float] = []
    group = rows[0].group
    for row in rows:
        y, group = y + APART * (row.group != group), row.group
        y += LINE if layout.labels_above else 0
        uppers.append(y)
        y += THICK + GAP if layout.labels_above else ROW
    _line(drawing, uppers, x, budget, 0 if layout.labels_above else OVER)
    for row, upper in zip(rows, uppers, strict=True):
        _bar(drawing, row, upper, x)
        _words(drawing, row, upper, x, layout)
    bottom = uppers[-1] + THICK + 8
    across(drawing, x, bottom, unit, x.ticks(4 if layout.labels_above else 6))
    drawing.height = bottom + BELOW
    return drawing


def _bar(drawing: Drawing, row: Stack, y: float, x: Scale) -> None:
    start = 0.0
    for part in row.parts:
        look, letters = LOOKS[part.kind]
        left, width = x(start), x(start + part.size) - x(start)
        start += part.size
        if width < LEAST:
            continue
        drawing.box(left, y, width, THICK, f"span {look}", say=part.say)
        fits = part.name if text_width(part.name) + 6 < width else _initial(part.name)
        if text_width(fits) + 4 < width:
            drawing.word(left + width / 2, y + THICK / 2, fits, letters, "middle")


def _initial(name: str) -> str:
    return name[:1].upper()


def _words(drawing: Drawing, row: Stack, y: float, x: Scale, layout: Layout) -> None:
    """The name of a bar, and its sum, to which play.js adds whether it fits."""
    middle, place, side = y + THICK / 2, x.end + BESIDE, ""
    if layout.labels_above:
        middle, place, side = y - LINE / 2, layout.width - 1.0, ' text-anchor="end"'
        drawing.word(0, middle, row.label)
    else:
        drawing.word(x.start - GAP, middle, row.label, anchor="end")
    at = f'x="{number(place)}" y="{number(middle)}"{side}'
    drawing.parts.append(f'<text data-need="{row.size:.3f}" {at}>{row.words}</text>')


def _line(drawing: Drawing, uppers: Sequence[float], x: Scale, budget: float, above: float) -> None:
    """The line, a stroke for each bar, which begins that far above it."""
    places = f"{number(x.start)} {number(x.end)} {x.high:.6g}"
    drawing.parts.append(f'<g data-scale="{places}">')
    for upper in uppers:
        drawing.line(x(budget), upper - above, x(budget), upper + THICK + OVER, "budget")
    drawing.parts.append("</g>")


def _legend(drawing: Drawing, rows: Sequence[Stack], names: Sequence[str]) -> float:
    """Swatches of the parts that any row has, in as many lines as they need; returns their end.

    Each holds the letter that stands on a bar which is too narrow for the part's name.
    """
    used = sorted({part.kind for row in rows for part in row.parts})
    x, y = 0.0, 10.0
    for kind in used:
        width = SWATCH + GAP + text_width(names[kind]) + 2 * GAP
        if x and x + width > drawing.width:
            x, y = 0.0, y + LINE
        look, letters = LOOKS[kind]
        drawing.box(x, y - SWATCH / 2, SWATCH, SWATCH, f"span {look}")
        drawing.word(x + SWATCH / 2, y, _initial(names[kind]), letters, "middle")
        drawing.word(x + SWATCH + GAP, y, names[kind])
        x += width
    return y + LINE
