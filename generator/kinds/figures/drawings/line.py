"""Number lines, one below another: the numbers of a format, and the one held at each moment.

A dashed line across each is at the number that is wanted.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from proofbook.generator.kinds.figures.axes import BELOW, GAP, LegendEntry, Scale, legend, plain
from proofbook.generator.kinds.figures.axes import x_axis as axis_below
from proofbook.generator.kinds.figures.drawing import LINE, Drawing, PageWidth

ROW, TICK, CLOSE = 58, 8, 2.5  # pixels: a row; of a tick, up and down; between ticks seen apart


class NumberLine(NamedTuple):
    """A row: its name, the numbers of its format, and the one that is held at each moment."""

    label: str
    numbers: Sequence[float]
    held: Sequence[float]


def line(
    rows: Sequence[NumberLine], wanted: Sequence[float], words: tuple[str, str], layout: PageWidth
) -> Drawing:
    """`Drawing` of rows, played; `words` name what is wanted and what is held."""
    drawing, held = Drawing(layout.width), LegendEntry(words[1], mark=("compute", "circle"))
    top = legend(drawing, [LegendEntry(words[0], line="budget"), held]) + GAP
    numbers = [number for row in rows for number in row.numbers]
    scale = Scale(min(numbers), max([*numbers, *wanted]), GAP, layout.width - GAP)
    middles = [top + ROW * n + LINE + 2 * TICK for n in range(len(rows))]
    bottom = top + ROW * len(rows) + GAP
    for row, y in zip(rows, middles, strict=True):
        drawing.word(0, y - 2 * TICK - LINE / 2, row.label)
        drawing.line(scale.start, y, scale.end, y, "grid")
        for start, end in _ticks([scale(number) for number in row.numbers]):
            if end > start:
                drawing.box(start, y - TICK, end - start, 2 * TICK, "axis")
            drawing.line(start, y - TICK, start, y + TICK, "axis")
    for n, exact in enumerate(wanted):
        until = (n + 1) / (len(wanted) - 1)
        with drawing.during(n / (len(wanted) - 1), until if n + 1 < len(wanted) else 2):
            for row, y in zip(rows, middles, strict=True):
                drawing.line(scale(exact), y - 2 * TICK, scale(exact), y + 2 * TICK, "budget")
                drawing.point(scale(row.held[n]), y, "compute", radius=6)
    drawing.height = bottom + BELOW
    axis_below(drawing, scale, bottom, "", scale.ticks(4), lambda value: plain(value, 5))
    return drawing


def _ticks(places: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Yield the start and end of each tick; those that are too close are one."""
    start = end = places[0]
    for place in places[1:]:
        if place - end > CLOSE:
            yield start, end
            start = place
        end = place
    yield start, end
