"""Loss, accuracy and the like over epochs: lines told apart by colour and by dash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from generator.figures.chart import Spec, chart, layer, pixels

SERIES = (  # pinned order of colour and dash
    ("var(--pb-series-a)", [1, 0]),
    ("var(--pb-series-b)", [6, 3]),
    ("var(--pb-series-c)", [2, 3]),
    ("var(--pb-series-d)", [9, 3, 2, 3]),
)


@dataclass(frozen=True)
class Series:
    """One line over epochs: `points` are (x, y); `says` tells each of them in words."""

    name: str
    points: tuple[tuple[float, float], ...]
    says: tuple[str, ...] = ()


def lines(series: Sequence[Series], x_title: str, percent: bool) -> Spec:
    """Lines over a whole-numbered x, half a column wide; a legend row names colour and dash."""
    width, height = 336, 170
    points: list[Spec] = [{"name": s.name, "x": x, "y": y} for s in series for x, y in s.points]
    told = [
        {"name": s.name, "x": x, "y": y, "say": say}
        for s in series
        for (x, y), say in zip(s.points, s.says, strict=False)
    ]
    names = [s.name for s in series]
    low = min(p["y"] for p in points)
    high = max(p["y"] for p in points)
    room = (high - low) * 0.12 or abs(high) * 0.1 or 1.0
    xs = sorted({p["x"] for p in points})
    x = {
        "field": "x",
        "type": "quantitative",
        "scale": {"domain": [xs[0], xs[-1] if len(xs) > 1 else xs[0] + 1], "nice": False},
        "axis": {"title": x_title, "values": xs, "format": "d", "grid": False},
    }
    y = {
        "field": "y",
        "type": "quantitative",
        "scale": {"domain": [low - room, high + room], "nice": False, "zero": False},
        "axis": {"title": None, "tickCount": 4, "grid": True, "domain": False, "ticks": False}
        | ({"format": ".0%"} if percent else {"format": ",.6~g"}),
    }
    colour = {
        "field": "name",
        "type": "nominal",
        "scale": {"domain": names, "range": [SERIES[i % 4][0] for i in range(len(names))]},
        "legend": None,
    }
    dash = {
        "field": "name",
        "type": "nominal",
        "scale": {"domain": names, "range": [SERIES[i % 4][1] for i in range(len(names))]},
        "legend": None,
    }
    layers = [
        layer(
            {"type": "line", "strokeWidth": 2.2}, points, x=x, y=y, stroke=colour, strokeDash=dash
        ),
        layer(
            {"type": "point", "filled": True, "opacity": 1, "size": 34},
            told or points,
            x=x,
            y=y,
            fill=colour,
        ),
        *_legend([(n, *SERIES[i % 4]) for i, n in enumerate(names)]),
    ]
    top = 8 + 20 * len(names)
    return chart(layers, width, height, {"left": 46, "right": 12, "top": top, "bottom": 44})


def _legend(entries: Sequence[tuple[str, str, list[int]]]) -> list[Spec]:
    """Rows above the plot: a stretch of the line itself, then its name."""
    rows = [
        {"name": name, "y": -12 - 20 * (len(entries) - 1 - i), "from": 0, "to": 26, "at": 34}
        for i, (name, _, _) in enumerate(entries)
    ]
    strokes = [
        layer(
            {"type": "rule", "stroke": colour, "strokeDash": dash, "strokeWidth": 2.4},
            [row],
            x=pixels("from"),
            x2={"field": "to"},
            y=pixels("y"),
        )
        for row, (_, colour, dash) in zip(rows, entries, strict=True)
    ]
    words = layer(
        {"type": "text", "align": "left", "baseline": "middle"},
        rows,
        x=pixels("at"),
        y=pixels("y"),
        text={"field": "name"},
    )
    return [*strokes, words]
