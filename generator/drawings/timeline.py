"""Who did what when: a row a rank, a box an activity, a thin line for waiting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from generator.chart import Layout, Spec, chart, layer, pixels, scaled

ACTIVITIES = {
    "compute": "var(--pb-compute)",
    "communication": "var(--pb-communication)",
    "waiting": "var(--pb-waiting)",
}


@dataclass(frozen=True)
class Activity:
    """What a row did between two moments, in the unit of the axis."""

    row: str
    activity: Literal["compute", "communication", "waiting"]
    name: str
    start: float
    end: float


def timeline(
    rows: Sequence[str],
    spans: Sequence[Activity],
    unit: str,
    words: dict[str, str],
    layout: Layout,
) -> Spec:
    """Who did what when: a row a rank, a box an activity, a thin line for waiting.

    Args:
        rows: names of the rows, from top to bottom.
        spans: what each did, in `unit`.
        unit: title of the axis.
        words: the activities' names in the legend.
        layout: the room there is.
    """
    height, left = (30, 52) if layout.labels_above else (34, 70)
    top = max(s.end for s in spans)
    place = {name: i * height + height / 2 for i, name in enumerate(rows)}
    half = {"compute": 9, "communication": 9, "waiting": 1.5}
    boxes = [
        {
            "start": s.start,
            "end": s.end,
            "upper": place[s.row] - half[s.activity],
            "lower": place[s.row] + half[s.activity],
            "fill": ACTIVITIES[s.activity],
        }
        for s in sorted(spans, key=lambda s: (s.activity != "waiting", s.activity, s.start))
    ]
    labels = [{"name": name, "at": -8, "y": y} for name, y in place.items()]
    tall = height * len(rows) + 6
    layers = [
        layer(
            {"type": "rect"},
            boxes,
            x=scaled("start", top, unit, 4 if layout.labels_above else 6),
            x2={"field": "end"},
            y=pixels("upper"),
            y2={"field": "lower"},
            fill={"field": "fill", "type": "nominal", "scale": None},
        ),
        layer(
            {"type": "text", "align": "right", "baseline": "middle"},
            labels,
            x=pixels("at"),
            y=pixels("y"),
            text={"field": "name"},
        ),
        *_activity_legend(words, tall + 58),
    ]
    return chart(layers, layout.width, tall, {"left": left, "right": 14, "top": 4, "bottom": 72})


def _activity_legend(words: dict[str, str], y: float) -> list[Spec]:
    boxes, names, at = [], [], 0.0
    for activity, colour in ACTIVITIES.items():
        half = 1.5 if activity == "waiting" else 5.5
        boxes.append(
            {"from": at, "to": at + 14, "upper": y - half, "lower": y + half, "fill": colour}
        )
        names.append({"at": at + 20, "y": y, "name": words[activity]})
        at += 36 + 6.6 * len(words[activity])
    return [
        layer(
            {"type": "rect", "clip": False},
            boxes,
            x=pixels("from"),
            x2={"field": "to"},
            y=pixels("upper"),
            y2={"field": "lower"},
            fill={"field": "fill", "type": "nominal", "scale": None},
        ),
        layer(
            {"type": "text", "align": "left", "baseline": "middle"},
            names,
            x=pixels("at"),
            y=pixels("y"),
            text={"field": "name"},
        ),
    ]
