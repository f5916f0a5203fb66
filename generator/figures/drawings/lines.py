"""Loss, accuracy and the like over epochs: lines told apart by colour and by dash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from generator.figures.axes import (
    BELOW,
    Key,
    Scale,
    across,
    around,
    legend,
    percent,
    plain,
    room_for,
    up,
)
from generator.figures.drawing import Drawing

# pinned order of colour and dash: of two runs, both lines of training are blue, of validation grey
SERIES = ("series-a", "series-b dashed", "series-d dotted", "series-c dash-dot")
WIDTH, PLOT = 344, 170  # half a column wide; the height between the axes
RIGHT = 12
NEAR = 2  # pixels: lines that are nowhere further apart look like one


@dataclass(frozen=True)
class Series:
    """One line over epochs: `points` are (x, y); `says` tells each of them in words."""

    name: str
    points: tuple[tuple[float, float], ...]
    says: tuple[str, ...] = ()


def lines(
    series: Sequence[Series], x_title: str, *, is_share: bool, width: float = WIDTH,
    between: tuple[float, float] | None = None,
) -> Drawing:  # fmt: skip
    """Lines over a whole-numbered x; a legend row each names colour and dash.

    A line is a wide band where a later one lies on it, so that both are seen.

    Args:
        series: the lines; a point that has something to say is marked, and so is each of a line
            whose points say nothing.
        x_title: title of the axis across.
        is_share: whether the values print as percentages.
        width: of the drawing, in pixels.
        between: the lowest and the highest value, so that several drawings have the same axis.
    """
    drawing = Drawing(width)
    xs = sorted({x for one in series for x, _ in one.points})
    ys = [*(y for one in series for _, y in one.points), *(between or ())]
    space = 0 if max(ys) > min(ys) else abs(ys[0]) * 0.1 or 1.0
    ticks, says = around(min(ys) - space, max(ys) + space, 4), percent if is_share else plain
    near = NEAR * (ticks[-1] - ticks[0]) / PLOT
    looks = [
        f"{look.partition(' ')[0]} band"
        if any(_are_one(one, later, near) for later in series[position + 1 :])
        else f"{look} thick"
        for position, (one, look) in enumerate(zip(series, SERIES, strict=False))
    ]
    names = [one.name for one in series]
    top = legend(drawing, [Key(n, (look,)) for n, look in zip(names, looks, strict=True)]) + 12
    y = Scale(ticks[0], ticks[-1], top + PLOT, top)
    left = room_for(ticks, says)
    x = Scale(xs[0], max(xs[-1], xs[0] + 1), left, width - RIGHT)
    up(drawing, y, left, width - RIGHT, ticks, says)
    across(drawing, x, top + PLOT, x_title, xs if len(xs) < 20 else x.ticks(6))
    for one, look in zip(series, looks, strict=True):
        drawing.curve([(x(at), y(value)) for at, value in one.points], look)
    for one, look in zip(series, looks, strict=True):
        colour = look.partition(" ")[0]
        says_of = one.says or ("",) * len(one.points)
        for (at, value), say in zip(one.points, says_of, strict=True):
            if say or not one.says:
                drawing.point(x(at), y(value), colour, radius=3.3, say=say)
    drawing.height = top + PLOT + BELOW
    return drawing


def _are_one(one: Series, other: Series, near: float) -> bool:
    """Whether two lines have the same x, and everywhere nearly the same y."""
    pairs = list(zip(one.points, other.points, strict=False))
    has_same_x = [x for x, _ in one.points] == [x for x, _ in other.points]
    return has_same_x and all(abs(a - b) <= near for (_, a), (_, b) in pairs)
