"""Points and lines over two axes: epochs, growth, or a plane that a line divides."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from generator.figures.axes import (
    BELOW,
    GAP,
    LegendEntry,
    Scale,
    grid_lines,
    label_room,
    legend,
    plain,
    round_values,
    x_axis,
)
from generator.figures.drawing import LINE, Drawing, PageWidth, number

# Series are told apart by the shape of their points as well as by colour, both in a pinned order.
MARKS = (
    ("series-a", "circle"), ("series-b", "square"), ("series-c", "triangle"),
    ("series-d", "diamond"), ("series-e", "cross"),
)  # fmt: skip
# Pinned colours and dashes; of two runs, both lines of training are blue, of validation grey.
LINES = ("series-a", "series-b dashed", "series-d dotted", "series-c dash-dot")
RIGHT = 16
NEAR = 2  # pixels: lines of which most points are no further apart look like one


@dataclass(frozen=True)
class Axis:
    """What an axis says, and the values at its ends: those of its ticks, or others."""

    title: str
    ticks: Sequence[float]
    ends: tuple[float, float] | None = None
    says: Callable[[float], str] = plain
    is_logarithmic: bool = False

    def between(self, start: float, end: float) -> Scale:
        """The axis between two places in pixels."""
        low, high = self.ends or (self.ticks[0], self.ticks[-1])
        return Scale(low, high, start, end, self.is_logarithmic)


def axis_of(
    title: str, values: Collection[float], num: int, *,
    says: Callable[[float], str] = plain, is_logarithmic: bool = False,
) -> Axis:  # fmt: skip
    """An `Axis` with about `num` round ticks around some values; wider if all are equal."""
    low, high = min(values), max(values)
    space = 0 if high > low else abs(low) * 0.1 or 1.0
    ticks = round_values(low - space, high + space, num, is_logarithmic=is_logarithmic)
    return Axis(title, ticks, says=says, is_logarithmic=is_logarithmic)


@dataclass(frozen=True)
class Series:
    """Points of one look."""

    name: str  # for the legend; empty where another series stands there for this one
    points: Sequence[tuple[float, float, str]]  # of each x, y, and its words, if any
    line: str = ""  # the look of the line through them, if any
    mark: tuple[str, str] | None = None  # look and shape of points with words, if marked
    radius: float = 4  # of such a point


def dashed(name: str, points: Sequence[tuple[float, float, str]], position: int) -> Series:
    """A series with the dash and colour of a position among `LINES`; beyond, another marker."""
    turn, place = divmod(position, len(LINES))
    look, (_, shape) = LINES[place], MARKS[turn]
    return Series(name, points, f"{look} thick", (look.partition(" ")[0], shape), 3.3)


def _parted(series: Sequence[Series], near: float) -> list[Series]:
    """The same, with a band for a thick line that a later one lies on, so that both are seen."""
    return [
        replace(earlier, line=f"{earlier.line.partition(' ')[0]} band")
        if "thick" in earlier.line
        and any(_is_on(later, earlier, near) for later in series[n + 1 :])
        else earlier
        for n, earlier in enumerate(series)
    ]


def _is_on(later: Series, earlier: Series, near: float) -> bool:
    pairs = list(zip(later.points, earlier.points, strict=False))
    num_near = sum(a[0] == b[0] and abs(a[1] - b[1]) <= near for a, b in pairs)
    return len(later.points) == len(earlier.points) < 2 * num_near


def plot(
    series: Sequence[Series], x: Axis, y: Axis, height: float, layout: PageWidth, *,
    sides: tuple[str, str] | None = None, title: str = "",
) -> Drawing:  # fmt: skip
    """`Drawing` of series, from back to front, over axes `height` pixels apart, below a legend.

    With `sides` the line y = x is drawn, and words for what holds above and below it.
    """
    drawing = Drawing(layout.width)
    drawing.word(0, LINE / 2, title, "strong")
    series = _parted(series, NEAR * (y.ticks[-1] - y.ticks[0]) / height)
    keys = [LegendEntry(curve.name, curve.line, curve.mark) for curve in series if curve.name]
    top = GAP + (legend(drawing, keys, 10 + LINE * bool(title)) if keys or not title else LINE)
    to_x, to_y = _axes(drawing, x, y, top, height, sides)
    for curve in series:
        if curve.line:
            drawing.curve([(to_x(at), to_y(value)) for at, value, _ in curve.points], curve.line)
    for curve in series:
        for at, value, say in curve.points:
            if curve.mark and say:
                drawing.point(to_x(at), to_y(value), *curve.mark, curve.radius, say)
    return drawing


def _axes(
    drawing: Drawing, x: Axis, y: Axis, top: float, height: float, sides: tuple[str, str] | None
) -> tuple[Scale, Scale]:
    """Draw both axes and what divides the plane, and end the drawing below; the two scales."""
    drawing.word(0, top + LINE / 2, y.title, "soft")
    top += LINE + GAP if y.title else 4
    to_x = x.between(label_room(y.ticks, y.says), drawing.width - RIGHT)
    to_y = y.between(top + height, top)
    if sides:
        _draw_sides(drawing, to_x, to_y, *sides)
    grid_lines(drawing, to_y, to_x.start, to_x.end, y.ticks, y.says)
    x_axis(drawing, to_x, to_y.start, x.title, x.ticks, x.says)
    drawing.height = to_y.start + BELOW
    return to_x, to_y


class Point(NamedTuple):
    """Something that lies on a line which readers move: its name, its place, and what it says."""

    name: str
    x: float
    say: str


def crossed(
    points: Sequence[Point], x: Axis, y: Axis, height: float, layout: PageWidth, *,
    sides: tuple[str, str], at: float, title: str,
) -> Drawing:  # fmt: skip
    """`Drawing` of a plane that y = x divides; points, all at height `at`, on a line readers move.

    A point whose `x` is above that height fails. Both axes are logarithmic and have the same ends;
    `sides` says what holds above y = x, and below.
    """
    drawing = Drawing(layout.width)
    drawing.word(0, LINE / 2, title, "strong")
    shapes = dict(zip((point.name for point in points), (form for _, form in MARKS), strict=False))
    keys = [LegendEntry(name, mark=("", form)) for name, form in shapes.items()]
    top = legend(drawing, keys, LINE * 1.5) + GAP
    to_x, to_y = _axes(drawing, x, y, top, height, sides)
    for point in points:
        drawing.line(to_x(point.x), to_y.end, to_x(point.x), to_y.start, "idle dotted")
    ends = f"{number(to_y.start)} {number(to_y.end)} {y.ticks[-1]:g} {y.ticks[0]:g}"
    place = number(to_y(at))
    drawing.parts.append(f'<g data-scale="{ends}" transform="translate(0 {place})">')
    drawing.line(to_x.start, 0, to_x.end, 0, "series-a thick")
    for point in points:
        fails = ' class="pb-fails"' if at < point.x else ""
        drawing.parts.append(f'<g{fails} data-need="{point.x:.6g}" data-least="{point.x:.6g}">')
        drawing.point(to_x(point.x), 0, "", shapes[point.name], 6, point.say)
        drawing.parts.append("</g>")
    drawing.parts.append("</g>")
    return drawing


def _draw_sides(drawing: Drawing, x: Scale, y: Scale, above: str, below: str) -> None:
    """The two sides of the line from the lower left to the upper right, and their words."""
    low, high = (x.start, y.start), (x.end, y.end)
    for side, look in (((x.end, y.start), "series-b"), ((x.start, y.end), "series-a")):
        drawing.area([low, side, high], f"region {look}")
    drawing.line(*low, *high, "thick")
    drawing.word(x.start + 12, y.end + LINE, above)
    drawing.word(x.end - 12, y.start - LINE, below, anchor="end")
