"""A plane that the line y = x divides, on logarithmic axes: marks on the line, runs as points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from generator.figures.axes import BELOW, Key, Scale, across, around, legend, room_for, up
from generator.figures.drawing import LINE, Drawing, Layout
from generator.figures.drawings.growth import MARKS, RIGHT


@dataclass(frozen=True)
class Place:
    """A point of the plane, its name, and whether it is the one that a state shows."""

    x: float
    y: float
    say: str
    is_shown: bool = False


@dataclass(frozen=True)
class Words:
    """What the axes and the two sides of the line are called."""

    x_title: str
    y_title: str
    above: str
    below: str
    runs: str


def regions(
    runs: Sequence[Place], marks: Sequence[Place], words: Words, layout: Layout
) -> Drawing:  # fmt: skip
    """The line, a name on each of its sides, and a legend row for each mark."""
    drawing = Drawing(layout.width)
    keys = [Key(one.say, (), mark) for one, mark in zip(marks, MARKS[1:], strict=False)]
    top = legend(drawing, [Key(words.runs, (), MARKS[0]), *keys]) + 8
    drawing.word(0, top + LINE / 2, words.y_title, "soft")
    top += LINE + 12
    places = [value for one in (*runs, *marks) for value in (one.x, one.y)]
    ticks = around(min(places), max(places), 5, is_logarithmic=True)
    left, right, bottom = room_for(ticks), layout.width - RIGHT, top + 260
    x = Scale(ticks[0], ticks[-1], left, right, is_logarithmic=True)
    y = Scale(ticks[0], ticks[-1], bottom, top, is_logarithmic=True)
    drawing.area([(left, bottom), (right, bottom), (right, top)], "region series-b")
    drawing.area([(left, bottom), (left, top), (right, top)], "region series-a")
    up(drawing, y, left, right, ticks)
    across(drawing, x, bottom, words.x_title, ticks)
    drawing.line(left, bottom, right, top, "thick")
    drawing.word(left + 12, top + LINE, words.above)
    drawing.word(right - 12, bottom - LINE, words.below, anchor="end")
    for mark, (look, shape) in zip(marks, MARKS[1:], strict=False):
        drawing.point(x(mark.x), y(mark.y), look, shape, 5, say=mark.say)
    for one in sorted(runs, key=lambda run: run.is_shown):
        drawing.point(x(one.x), y(one.y), MARKS[0][0], radius=7 if one.is_shown else 4, say=one.say)
    drawing.height = bottom + BELOW
    return drawing
