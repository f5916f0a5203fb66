"""What was predicted against what was measured: a point a run, on a dashed line where equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from generator.figures.axes import BELOW, Scale, across, plain, room_for, up
from generator.figures.drawing import LINE, Drawing

WIDTH, PLOT, RIGHT = 336, 250, 12
ROOM = 1.4  # around the outermost points, as a factor
LOOKS = {True: ("series-a", "circle"), False: ("series-b", "triangle")}  # by: the interval held


@dataclass(frozen=True)
class Dot:
    """One run: both numbers in the unit of the axes, and what it says under the pointer."""

    expected: float
    measured: float
    is_within: bool
    say: str


def predicted(dots: Sequence[Dot], expected_title: str, measured_title: str) -> Drawing:
    """Points over two logarithmic axes of one scale; another shape where the interval failed."""
    drawing = Drawing(WIDTH)
    values = [value for one in dots for value in (one.expected, one.measured)]
    low, high = min(values) / ROOM, max(values) * ROOM
    top = LINE + 8
    y = Scale(low, high, top + PLOT, top, is_logarithmic=True)
    ticks = y.ticks(5)
    x = Scale(low, high, room_for(ticks), WIDTH - RIGHT, is_logarithmic=True)
    drawing.word(0, LINE / 2, measured_title, "soft")
    up(drawing, y, x.start, x.end, ticks)
    for tick in ticks:
        drawing.line(x(tick), y.start, x(tick), y.end, "grid")
    across(drawing, x, y.start, expected_title, ticks, lambda value: plain(value, 3))
    drawing.line(x.start, y.start, x.end, y.end, "formula")
    for one in sorted(dots, key=lambda one: not one.is_within):
        look, shape = LOOKS[one.is_within]
        drawing.point(x(one.expected), y(one.measured), look, shape, radius=3.6, say=one.say)
    drawing.height = y.start + BELOW
    return drawing
