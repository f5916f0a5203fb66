"""How a number grows: what was measured as points on a line, what a formula says as dashes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from generator.figures.axes import BELOW, Key, Scale, across, around, legend, plain, room_for, up
from generator.figures.drawing import LINE, Drawing, Layout

# Series are told apart by the shape of their points as well as by colour, both in a pinned order.
MARKS = (
    ("series-a", "circle"),
    ("series-b", "square"),
    ("series-c", "triangle"),
    ("series-d", "diamond"),
    ("series-e", "cross"),
)
RIGHT = 16
ROOM = 1.08  # between the outermost values and the ends of the axis across
ROOM_OF_POWERS = 1.25


@dataclass(frozen=True)
class Point:
    """A run: where it stands, what was measured, what the formula says there; all in words."""

    x: float
    measured: float
    predicted: float | None
    say: str = ""


@dataclass(frozen=True)
class Grown:
    """The runs of one line."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Axes:
    """What the two axes say; `is_logarithmic` holds for both."""

    x_title: str
    y_title: str
    measured: str  # names the lines beside a formula's
    formula: str
    is_logarithmic: bool
    x_digits: int = 4


def growth(series: Sequence[Grown], axes: Axes, layout: Layout) -> Drawing:
    """Points and lines over one horizontal axis; a legend row a series names colour and shape."""
    drawing = Drawing(layout.width)
    points = [one for line in series for one in line.points]
    has_formula = any(one.predicted is not None for one in points)
    # beside a formula a band, on which dashes still show
    looks = [f"{look} {'band' if has_formula else 'thick'}" for look, _ in MARKS]
    marks = list(zip(series, looks, MARKS, strict=False))
    top = legend(drawing, _keys(marks, axes, has_formula=has_formula)) + 8
    drawing.word(0, top + LINE / 2, axes.y_title, "soft")
    top += LINE + 12
    plot = 230 if layout.labels_above else 260
    ys = [y for one in points for y in (one.measured, one.predicted) if y is not None]
    is_logarithmic = axes.is_logarithmic
    low = min(ys) if is_logarithmic else 0
    ticks = around(low, max(ys) or 1, 5, is_logarithmic=is_logarithmic)
    y = Scale(ticks[0], ticks[-1], top + plot, top, is_logarithmic=is_logarithmic)
    left = room_for(ticks)
    xs = [one.x for one in points]
    x = _across(xs, left, layout.width - RIGHT, axes)
    up(drawing, y, left, layout.width - RIGHT, ticks)
    across(drawing, x, top + plot, axes.x_title, sorted(set(xs)), lambda v: plain(v, axes.x_digits))
    for line, look, _ in marks:
        drawing.curve([(x(one.x), y(one.measured)) for one in line.points], look)
    for formula in _formulas(series, x, y):
        drawing.curve(formula, "formula")
    for line, _, (colour, shape) in marks:
        for one in line.points:
            drawing.point(x(one.x), y(one.measured), colour, shape, say=one.say)
    drawing.height = top + plot + BELOW
    return drawing


def _formulas(
    series: Sequence[Grown], x: Scale, y: Scale
) -> Iterator[list[tuple[float, float]]]:  # fmt: skip
    """What the formula says of each line, once: dashes upon dashes would look like a line."""
    curves = [
        [(round(x(p.x), 1), round(y(p.predicted), 1)) for p in line.points
         if p.predicted is not None] for line in series
    ]  # fmt: skip
    drawn: set[tuple[float, float]] = set()
    for curve in sorted(curves, key=len, reverse=True):
        if not drawn.issuperset(curve):
            yield curve
            drawn.update(curve)


def _keys(
    marks: Sequence[tuple[Grown, str, tuple[str, str]]], axes: Axes, *, has_formula: bool
) -> list[Key]:
    keys = [
        Key(f"{line.name}, {axes.measured}" if has_formula else line.name, (look,), mark)
        for line, look, mark in marks
    ]
    return [*keys, Key(axes.formula, ("formula",))] if has_formula else keys


def _across(values: Sequence[float], start: float, end: float, axes: Axes) -> Scale:
    """Over what the values span; from zero where this leaves less than half of the axis empty."""
    low, high = min(values), max(values)
    if axes.is_logarithmic:
        room = ROOM_OF_POWERS
        return Scale(low / room, high * room, start, end, is_logarithmic=True)
    from_zero = low < high / 2 or low == high
    return Scale(0 if from_zero else low - high * (ROOM - 1), high * ROOM or 1, start, end)
