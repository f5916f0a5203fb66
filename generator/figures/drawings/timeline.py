"""Who did what when: a row a rank, a box an activity with its name, a thin line for waiting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from generator.figures.chart import Layout, Spec, chart, layer, pixels, scaled
from generator.figures.drawings.diagram import LETTER

ACTIVITIES = {
    "compute": "var(--pb-compute)",
    "communication": "var(--pb-communication)",
    "waiting": "var(--pb-waiting)",
}
HALF = {"compute": 10, "communication": 10, "waiting": 1.5}  # of a box's height, in pixels
ROW = 32
AXIS, LEGEND = 48, 22  # the room that each takes below the rows


@dataclass(frozen=True)
class Activity:
    """What a row did between two moments, in the unit of the axis; `say` tells it in words."""

    row: str
    activity: Literal["compute", "communication", "waiting"]
    name: str
    start: float
    end: float
    say: str = ""


def timeline(
    rows: Sequence[tuple[str, str]],
    spans: Sequence[Activity],
    unit: str,
    words: dict[str, str],
    layout: Layout,
) -> Spec:
    """Draw one step.

    Args:
        rows: names of the rows, from top to bottom, each with what stands at its end.
        spans: what each did, in `unit`.
        unit: title of the axis.
        words: the activities' names in the legend.
        layout: the room there is; on a narrow page what stands at a row's end is left out.
    """
    left, right = (52, 12) if layout.labels_above else (64, 108)
    width = layout.width - left - right
    top = max(s.end for s in spans)
    tall = ROW * len(rows)
    middles = {name: i * ROW + ROW / 2 for i, (name, _) in enumerate(rows)}
    names = [{"name": name, "at": -8, "y": y} for name, y in middles.items()]
    ends = [
        {"name": said, "at": width + 8, "y": middles[name]}
        for name, said in rows
        if said and not layout.labels_above
    ]
    x = scaled("start", top, unit, 4 if layout.labels_above else 6)
    layers = [
        _boxes(spans, middles, x),
        _box_names(spans, middles, x, width / top),
        _text(names, "right", "currentColor"),
        *([_text(ends, "left", "var(--pb-soft)")] if ends else []),
        *_activity_legend(words, tall + AXIS),
    ]
    sides = {"left": left, "right": right, "top": 2, "bottom": AXIS + LEGEND}
    return chart(layers, layout.width, tall, sides)


def _boxes(spans: Sequence[Activity], middles: dict[str, float], x: Spec) -> Spec:
    """The activities of each row, as they followed each other."""
    boxes = [
        {
            "start": s.start,
            "end": s.end,
            "upper": middles[s.row] - HALF[s.activity],
            "lower": middles[s.row] + HALF[s.activity],
            "fill": ACTIVITIES[s.activity],
            "say": s.say or s.name,
        }
        for s in sorted(spans, key=lambda s: (middles[s.row], s.start))
    ]
    return layer(
        {"type": "rect", "stroke": "var(--pb-ground)", "strokeWidth": 1},
        boxes,
        x=x,
        x2={"field": "end"},
        y=pixels("upper"),
        y2={"field": "lower"},
        fill={"field": "fill", "type": "nominal", "scale": None},
    )


def _box_names(
    spans: Sequence[Activity], middles: dict[str, float], x: Spec, pixels_per_unit: float
) -> Spec:
    """The names of activities, inside the boxes that have room for them."""
    named = [
        {"name": s.name, "start": (s.start + s.end) / 2, "y": middles[s.row]}
        for s in spans
        if s.activity != "waiting"
        and (s.end - s.start) * pixels_per_unit > LETTER * len(s.name) + 6
    ]
    look = {"type": "text", "align": "center", "baseline": "middle", "fill": "var(--pb-ground)"}
    return layer(look, named, x=x, y=pixels("y"), text={"field": "name"})


def _text(rows: Sequence[Spec], align: str, fill: str) -> Spec:
    look = {"type": "text", "align": align, "baseline": "middle", "fill": fill}
    return layer(look, rows, x=pixels("at"), y=pixels("y"), text={"field": "name"})


def _activity_legend(words: dict[str, str], y: float) -> list[Spec]:
    boxes, names, at = [], [], 0.0
    for activity, colour in ACTIVITIES.items():
        half = 1.5 if activity == "waiting" else 5.5
        boxes.append(
            {"from": at, "to": at + 14, "upper": y - half, "lower": y + half, "fill": colour}
        )
        names.append({"at": at + 20, "y": y, "name": words[activity]})
        at += 36 + 6.6 * len(words[activity])
    swatches = layer(
        {"type": "rect", "clip": False},
        boxes,
        x=pixels("from"),
        x2={"field": "to"},
        y=pixels("upper"),
        y2={"field": "lower"},
        fill={"field": "fill", "type": "nominal", "scale": None},
    )
    return [swatches, _text(names, "left", "currentColor")]
