"""Points and lines over two axes: epochs, growth, or the loss of each step."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from proofbook.generator.kinds.figures import axes
from proofbook.generator.kinds.figures.drawing import LINE, Drawing, PageWidth

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
    says: Callable[[float], str] = axes.plain
    is_logarithmic: bool = False

    def between(self, start: float, end: float) -> axes.Scale:
        """The axis between two places in pixels."""
        low, high = self.ends or (self.ticks[0], self.ticks[-1])
        return axes.Scale(low, high, start, end, self.is_logarithmic)


def axis_of(
    title: str, values: Collection[float], num: int, *,
    says: Callable[[float], str] = axes.plain, is_logarithmic: bool = False,
) -> Axis:  # fmt: skip
    """An `Axis` with about `num` round ticks around some values; wider if all are equal."""
    low, high = min(values), max(values)
    space = 0 if high > low else abs(low) * 0.1 or 1.0
    ticks = axes.round_values(low - space, high + space, num, is_logarithmic=is_logarithmic)
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


def plot(series: Sequence[Series], x: Axis, y: Axis, height: float, layout: PageWidth) -> Drawing:
    """`Drawing` of series, from back to front, over axes `height` pixels apart, below a legend."""
    drawing = Drawing(layout.width)
    series = _parted(series, NEAR * (y.ticks[-1] - y.ticks[0]) / height)
    keys = [axes.LegendEntry(curve.name, curve.line, curve.mark) for curve in series if curve.name]
    top = axes.GAP + axes.legend(drawing, keys)
    drawing.word(0, top + LINE / 2, y.title, "soft")
    top += LINE + axes.GAP if y.title else 4
    to_x = x.between(axes.label_room(y.ticks, y.says), drawing.width - RIGHT)
    to_y = y.between(top + height, top)
    axes.grid_lines(drawing, to_y, to_x.start, to_x.end, y.ticks, y.says)
    axes.x_axis(drawing, to_x, to_y.start, x.title, x.ticks, x.says)
    drawing.height = to_y.start + axes.BELOW
    for curve in series:
        if curve.line:
            drawing.curve([(to_x(at), to_y(value)) for at, value, _ in curve.points], curve.line)
    for curve in series:
        for at, value, say in curve.points:
            if curve.mark and say:
                drawing.point(to_x(at), to_y(value), *curve.mark, curve.radius, say)
    return drawing
