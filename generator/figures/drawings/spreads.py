"""Repeated times: median, quartiles and the raw samples behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from generator.figures.chart import Layout, Spec, chart, layer, pixels, scaled

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
    say: str = ""  # the row in words, with its quartiles


def spreads(rows: Sequence[Spread], unit: str, layout: Layout) -> Spec:
    """A whisker between quartiles, a tick at the median, the raw samples faint."""
    above = layout.labels_above
    height = 44 if above else 34
    top = max(_end(r) for r in rows) * 1.05
    marks = [_mark(row, i * height, above=above) for i, row in enumerate(rows)]
    x = scaled("first", top, unit, 4 if above else 6)
    layers = [
        _dots(rows, marks, top / NUM_PLACES, x),
        layer(
            {"type": "rule", "stroke": "var(--pb-compute)", "strokeWidth": 5},
            [{**mark, "say": row.say or row.words} for row, mark in zip(rows, marks, strict=True)],
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
            {"type": "text", "align": "left" if above else "right", "baseline": "middle"},
            marks,
            x=pixels("at"),
            y=pixels("above" if above else "y"),
            text={"field": "label"},
        ),
    ]
    if not above:
        layers.append(_words(rows, marks, x))
    sides = {"left": 6 if above else 158, "right": 14 if above else 96}
    return chart(layers, layout.width, height * len(rows) + 6, {**sides, "top": 4, "bottom": 42})


def _end(row: Spread) -> float:
    """The largest value that a row shows."""
    return max(row.samples, default=row.third_quartile)


def _mark(row: Spread, start: int, *, above: bool) -> Spec:
    """Where a row that starts at this height stands, and what it says."""
    middle = start + (30 if above else 17)
    return {
        "label": f"{row.label} · {row.words}" if above else row.label,
        "words": row.words,
        "first": row.first_quartile,
        "median": row.median,
        "third": row.third_quartile,
        "y": middle,
        "upper": middle - 8,
        "lower": middle + 8,
        "above": start + 10,
        "at": 0 if above else -8,
    }


def _dots(rows: Sequence[Spread], marks: Sequence[Spec], distance: float, x: Spec) -> Spec:
    """The raw samples, faint, each row at its height."""
    dots = [
        {"sample": sample, "y": mark["y"]}
        for row, mark in zip(rows, marks, strict=True)
        for sample in _told_apart(row.samples, distance)
    ]
    look = {"type": "point", "filled": True, "size": 22, "opacity": 0.35}
    return layer(
        {**look, "fill": "var(--pb-compute)"}, dots, x={**x, "field": "sample"}, y=pixels("y")
    )


def _words(rows: Sequence[Spread], marks: Sequence[Spec], x: Spec) -> Spec:
    """What a row amounts to, to the right of all that it shows."""
    ends = [{**mark, "end": _end(row)} for mark, row in zip(marks, rows, strict=True)]
    return layer(
        {"type": "text", "align": "left", "baseline": "middle", "dx": 10},
        ends,
        x={**x, "field": "end"},
        y=pixels("y"),
        text={"field": "words"},
    )
