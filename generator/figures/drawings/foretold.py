"""What was foretold against what was measured: a point a run, on a dashed line where equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from generator.figures.chart import Spec, chart, layer
from generator.figures.drawings.growth import powers

WIDTH, HEIGHT = 336, 250
ROOM = 1.4  # around the outermost points, as a factor
EVEN = {"stroke": "currentColor", "strokeWidth": 1.4, "strokeDash": [5, 4]}


@dataclass(frozen=True)
class Dot:
    """One run: both numbers in the unit of the axes, and what it says under the pointer."""

    expected: float
    measured: float
    is_within: bool
    say: str


def foretold(dots: Sequence[Dot], expected_title: str, measured_title: str) -> Spec:
    """Points over two logarithmic axes of one scale; filled where the interval held."""
    values = [value for one in dots for value in (one.expected, one.measured)]
    domain = [min(values) / ROOM, max(values) * ROOM]
    scale = {"type": "log", "domain": domain, "nice": False}
    axis: Spec = {"format": ",.3~r", "grid": True, "values": powers(*domain)}
    axis["titleAlign"] = "right"
    x: Spec = {"field": "expected", "type": "quantitative", "scale": scale}
    x["axis"] = {**axis, "title": expected_title, "titleAnchor": "end", "labelOverlap": True}
    y: Spec = {"field": "measured", "type": "quantitative", "scale": scale}
    y["axis"] = {**axis, "title": measured_title, "titleAnchor": "end", "domain": False}
    even = [{"expected": value, "measured": value} for value in domain]
    layers = [layer({"type": "line", **EVEN}, even, x=x, y=y)]
    for is_within, colour, shape in (
        (True, "var(--pb-series-a)", "circle"),
        (False, "var(--pb-series-b)", "triangle-up"),
    ):
        rows = [
            {"expected": one.expected, "measured": one.measured, "say": one.say}
            for one in dots
            if one.is_within == is_within
        ]
        mark = {"type": "point", "size": 42, "shape": shape, "filled": True, "fill": colour}
        if rows:
            layers.append(layer({**mark, "opacity": 1}, rows, x=x, y=y))
    return chart(layers, WIDTH, HEIGHT, {"left": 80, "right": 12, "top": 10, "bottom": 44})
