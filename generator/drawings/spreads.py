"""Repeated times: median, quartiles and the raw samples behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from generator.chart import Layout, Spec, chart, layer, pixels, scaled

NUM_PLACES = 120  # dots nearer than this part of the axis cover each other


def _told_apart(samples: Sequence[float], distance: float) -> list[float]:
    """The samples whose dots can be told apart; the smallest and the largest are among them."""
    places = {round(sample / distance): sample for sample in sorted(samples)}
    return sorted({*places.values(), *(e(samples) for e in (min, max) if samples)})


@dataclass(frozen=True)
class Spread:
    """A repeated measurement: quartiles and the raw samples, all in the unit of the axis."""

    label: str
    first_quartile: float
    median: float
    third_quartile: float
    samples: tuple[float, ...]
    words: str


def spreads(rows: Sequence[Spread], unit: str, layout: Layout) -> Spec:
    """A whisker between quartiles, a tick at the median, the raw samples faint."""
    height = 44 if layout.labels_above else 34
    left = 6 if layout.labels_above else 158
    right = 14 if layout.labels_above else 96
    top = max(max(r.samples, default=r.third_quartile) for r in rows) * 1.05
    marks = [
        {
            "label": f"{r.label} · {r.words}" if layout.labels_above else r.label,
            "words": r.words,
            "first": r.first_quartile,
            "median": r.median,
            "third": r.third_quartile,
            "y": i * height + (30 if layout.labels_above else 17),
            "upper": i * height + (30 if layout.labels_above else 17) - 8,
            "lower": i * height + (30 if layout.labels_above else 17) + 8,
            "above": i * height + 10,
            "at": 0 if layout.labels_above else -8,
        }
        for i, r in enumerate(rows)
    ]
    dots = [
        {"sample": s, "y": mark["y"]}
        for r, mark in zip(rows, marks, strict=True)
        for s in _told_apart(r.samples, top / NUM_PLACES)
    ]
    x = scaled("first", top, unit, 4 if layout.labels_above else 6)
    align = "left" if layout.labels_above else "right"
    layers = [
        layer(
            {
                "type": "point",
                "filled": True,
                "size": 22,
                "opacity": 0.35,
                "fill": "var(--pb-compute)",
            },
            dots,
            x={**x, "field": "sample"},
            y=pixels("y"),
        ),
        layer(
            {"type": "rule", "stroke": "var(--pb-compute)", "strokeWidth": 5},
            marks,
            x=x,
            x2={"field": "third"},
            y=pixels("y"),
        ),
        layer(
            {"type": "rule", "stroke": "currentColor", "strokeWidth": 2.4},
            marks,
            x={**x, "field": "median"},
            y=pixels("upper"),
            y2={"field": "lower"},
        ),
        layer(
            {"type": "text", "align": align, "baseline": "middle"},
            marks,
            x=pixels("at"),
            y=pixels("above" if layout.labels_above else "y"),
            text={"field": "label"},
        ),
    ]
    if not layout.labels_above:
        end = [{**mark, "end": max(r.samples, default=r.third_quartile)}
               for mark, r in zip(marks, rows, strict=True)]  # fmt: skip
        layers.append(
            layer(
                {"type": "text", "align": "left", "baseline": "middle", "dx": 10},
                end,
                x={**x, "field": "end"},
                y=pixels("y"),
                text={"field": "words"},
            )
        )
    tall = height * len(rows) + 6
    return chart(layers, layout.width, tall, {"left": left, "right": right, "top": 4, "bottom": 42})
