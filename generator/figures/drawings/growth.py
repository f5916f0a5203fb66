"""How a number grows: what was measured as points on a line, what a formula says as dashes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from generator.figures.chart import Layout, Spec, chart, layer, pixels

# Series are told apart by the shape of their points as well as by colour, both in a pinned order.
MARKS = (
    ("var(--pb-series-a)", "circle"),
    ("var(--pb-series-b)", "square"),
    ("var(--pb-series-c)", "triangle-up"),
    ("var(--pb-series-d)", "diamond"),
    ("var(--pb-series-e)", "cross"),
)
FORMULA = {"stroke": "currentColor", "strokeWidth": 1.7, "strokeDash": [5, 4]}
ALONE = {"strokeWidth": 2.6}
BESIDE_FORMULA = {"strokeWidth": 8, "strokeOpacity": 0.3}  # a band, on which dashes still show
LEGEND_ROW = 20
TICK_ROOM = 44  # pixels from one label of the horizontal axis to the next
ROOM = 1.08  # between the largest value and the frame


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


def growth(series: Sequence[Grown], axes: Axes, layout: Layout) -> Spec:
    """Points and lines over one horizontal axis; a legend row a series names colour and shape."""
    points = [one for line in series for one in line.points]
    sides = {"left": 58, "right": 16}
    width = layout.width - sides["left"] - sides["right"]
    xs = [one.x for one in points]
    ys = [y for one in points for y in (one.measured, one.predicted) if y is not None]
    x, y = _axis("x", xs, axes), _axis("y", ys, axes)
    x["axis"] |= {"title": axes.x_title, "values": _ticks(xs, x["scale"], width), "grid": False}
    x["axis"] |= {"titleAlign": "right", "titleAnchor": "end", "format": f",.{axes.x_digits}~r"}
    y["axis"] |= {"title": None, "grid": True, "domain": False, "ticks": False}
    if axes.is_logarithmic:
        y["axis"]["values"] = powers(*y["scale"]["domain"])
    else:
        y["axis"]["tickCount"] = 5
    layers = [part for i, line in enumerate(series) for part in _marks(line, MARKS[i], x, y)]
    has_formula = any(one.predicted is not None for one in points)
    names = [f"{line.name}, {axes.measured}" if has_formula else line.name for line in series]
    legend = _legend(names, axes.formula if has_formula else None)
    num_rows = len(names) + has_formula
    title = {"words": axes.y_title, "x": -sides["left"] + 4, "y": -14}
    words = {"type": "text", "align": "left", "baseline": "middle", "fill": "var(--pb-soft)"}
    layers += [
        *legend,
        layer(words, [title], x=pixels("x"), y=pixels("y"), text={"field": "words"}),
    ]
    height = 230 if layout.labels_above else 260
    top = LEGEND_ROW * num_rows + 34
    return chart(layers, layout.width, height, {**sides, "top": top, "bottom": 46})


def _axis(field: str, values: Sequence[float], axes: Axes) -> Spec:
    """A channel from nought, or over the powers that the values span."""
    if axes.is_logarithmic:
        domain = [min(values) / 1.25, max(values) * 1.25]
        scale: Spec = {"type": "log", "domain": domain, "nice": False}
    else:
        scale = {"domain": [0, max(values) * ROOM or 1], "nice": False, "zero": True}
    return {
        "field": field,
        "type": "quantitative",
        "scale": scale,
        "axis": {"format": ",.4~r"},
    }


def _ticks(values: Sequence[float], scale: Spec, width: float) -> list[float]:
    """The places of the runs themselves, as many as have room for a label, the last one always."""
    low, high = scale["domain"]
    kept: list[float] = []
    last = math.inf
    for value in sorted(set(values), reverse=True):
        share = (value - low) / (high - low)
        if scale.get("type") == "log":
            share = math.log(value / low) / math.log(high / low)
        if last - share * width >= TICK_ROOM:
            kept.append(value)
            last = share * width
    return kept[::-1]


def powers(low: float, high: float) -> list[float]:
    """Round numbers between two: tens and, where they are few, their doubles and fives too."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    tens = [10.0**e for e in exponents if low <= 10.0**e <= high]
    if len(tens) > 3:
        return tens
    return [f * 10.0**e for e in exponents for f in (1, 2, 5) if low <= f * 10.0**e <= high]


def _marks(line: Grown, mark: tuple[str, str], x: Spec, y: Spec) -> list[Spec]:
    colour, shape = mark
    measured = [{"x": one.x, "y": one.measured} for one in line.points]
    told = [{**row, "say": one.say} for row, one in zip(measured, line.points, strict=True)]
    formula = [{"x": one.x, "y": one.predicted} for one in line.points if one.predicted is not None]
    look = BESIDE_FORMULA if formula else ALONE
    drawn = [layer({"type": "line", "stroke": colour, **look}, measured, x=x, y=y)]
    if formula:
        drawn.append(layer({"type": "line", **FORMULA}, formula, x=x, y=y))
    points = {"type": "point", "filled": True, "opacity": 1, "size": 70}
    drawn.append(layer({**points, "shape": shape, "fill": colour}, told, x=x, y=y))
    return drawn


def _legend(names: Sequence[str], formula: str | None) -> list[Spec]:
    """A row a series above the plot: its line and its point; last the dashed one of the formula."""
    rows = [*names, *([formula] if formula else [])]
    places = [
        {"name": name, "y": -34 - LEGEND_ROW * (len(rows) - 1 - i), "from": -50, "to": -24,
         "middle": -37, "at": -16}
        for i, name in enumerate(rows)
    ]  # fmt: skip
    parts = []
    look = BESIDE_FORMULA if formula else ALONE
    for place, (colour, shape) in zip(places, MARKS[: len(names)], strict=False):
        point = {"type": "point", "filled": True, "opacity": 1, "size": 70}
        parts += [
            _stretch({"stroke": colour, **look}, place),
            layer({**point, "shape": shape, "fill": colour}, [place],
                  x=pixels("middle"), y=pixels("y")),
        ]  # fmt: skip
    if formula:
        parts.append(_stretch(FORMULA, places[-1]))
    words = {"type": "text", "align": "left", "baseline": "middle"}
    return [
        *parts,
        layer(words, places, x=pixels("at"), y=pixels("y"), text={"field": "name"}),
    ]


def _stretch(look: Spec, place: Spec) -> Spec:
    """A stretch of a line in the legend."""
    rule = {"type": "rule", **look}
    return layer(rule, [place], x=pixels("from"), x2={"field": "to"}, y=pixels("y"))
