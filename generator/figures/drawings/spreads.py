"""Repeated times: median, quartiles and the raw samples behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from generator.figures.axes import BELOW, GAP, Scale, across
from generator.figures.drawing import LINE, Drawing, Layout, text_width, wrapped

NUM_PLACES = 120  # dots nearer than this part of the axis cover each other
ROW, HALF = 34, 8  # pixels: a row; from its middle to the end of the median's tick
DOT = 2.7


@dataclass(frozen=True)
class Spread:
    """A repeated measurement: quartiles and the raw samples, all in the unit of the axis."""

    label: str
    first_quartile: float
    median: float
    third_quartile: float
    samples: tuple[float, ...]
    words: str
    say: str = ""  # the row in words, with its quartiles

    @property
    def end(self) -> float:
        """The largest value that the row shows."""
        return max(self.samples, default=self.third_quartile)


def spreads(rows: Sequence[Spread], unit: str, layout: Layout) -> Drawing:
    """A bar between quartiles, a tick at the median, the raw samples faint."""
    drawing = Drawing(layout.width)
    top = max(row.end for row in rows) * 1.05
    x = _scale(rows, top, layout)
    y = 4.0
    for row in rows:
        if layout.labels_above:
            for line in wrapped(f"{row.label} · {row.words}", layout.width):
                drawing.word(0, y + LINE / 2, line)
                y += LINE
            y -= 6
        middle = y + ROW / 2
        for sample in _told_apart(row.samples, top / NUM_PLACES):
            drawing.point(x(sample), middle, "compute faint", radius=DOT)
        low, high = x(row.first_quartile), x(row.third_quartile)
        drawing.line(low, middle, high, middle, "compute quartiles", row.say or row.words)
        drawing.line(x(row.median), middle - HALF, x(row.median), middle + HALF, "thick")
        if not layout.labels_above:
            drawing.word(x.start - GAP, middle, row.label, anchor="end")
            drawing.word(x(row.end) + GAP + DOT, middle, row.words)
        y += ROW
    across(drawing, x, y + 4, unit, x.ticks(4 if layout.labels_above else 6))
    drawing.height = y + 4 + BELOW
    return drawing


def _scale(rows: Sequence[Spread], top: float, layout: Layout) -> Scale:
    """From zero to `top`, with room for the words beside a row."""
    if layout.labels_above:
        return Scale(0, top, DOT, layout.width - DOT)
    left = max(text_width(row.label) for row in rows) + GAP
    ends = (
        left + (layout.width - left - text_width(row.words) - GAP - DOT) * top / row.end
        for row in rows
    )
    return Scale(0, top, left, min(layout.width - DOT, *ends))


def _told_apart(samples: Sequence[float], distance: float) -> list[float]:
    """The samples whose dots can be told apart; the smallest and the largest are among them."""
    places = {round(sample / distance): sample for sample in sorted(samples)}
    return sorted({*places.values(), *(e(samples) for e in (min, max) if samples)})
