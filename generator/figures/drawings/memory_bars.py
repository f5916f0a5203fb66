"""Every rank's need as a bar against one dashed budget line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from generator.figures.chart import Layout, Spec, chart, layer, pixels, scaled

Tone = Literal["refused", "completed", "plain"]
TONES: dict[Tone, str] = {
    "refused": "var(--pb-fails)",
    "completed": "var(--pb-compute)",
    "plain": "var(--pb-compute)",
}


@dataclass(frozen=True)
class Bar:
    """One bar: `size` in the unit of the axis, `words` beside it, rows of a `group` together."""

    group: str
    label: str
    size: float
    words: str
    tone: Tone
    limit: float | None = None  # the dashed line it is held against
    say: str = ""  # the row in words


def memory_bars(bars: Sequence[Bar], unit: str, limit_words: str, layout: Layout) -> Spec:
    """Every row's need as a bar against a dashed line.

    Args:
        bars: rows from top to bottom, sizes and limits in `unit`.
        unit: title of the axis, as in "MiB per rank".
        limit_words: what the dashed line is, as in "budget 320 MiB".
        layout: the room there is.
    """
    row, thickness = (42, 13) if layout.labels_above else (25, 14)
    gap = 10
    top = max([b.size for b in bars] + [b.limit or 0 for b in bars]) * 1.02
    left = 2 if layout.labels_above else 158
    right = 12 if layout.labels_above else 200
    rows: list[Spec] = []
    y, group = 4.0, bars[0].group
    for bar in bars:
        if bar.group != group:
            y, group = y + gap, bar.group
        upper = y + (22 if layout.labels_above else 4)
        rows.append(
            {
                "label": bar.label,
                "words": bar.words,
                "say": bar.say or f"{bar.label}: {bar.words}",
                "zero": 0,
                "size": bar.size,
                "limit": bar.limit,
                "upper": upper,
                "lower": upper + thickness,
                "middle": upper + thickness / 2,
                "above": upper - 10,
                "fill": TONES[bar.tone],
                "from": upper - 3 if layout.labels_above else y - 1,
                "to": upper + thickness + 3 if layout.labels_above else y + row + 1,
            }
        )
        y += row
    x = scaled("zero", top, unit, 4 if layout.labels_above else 6)
    layers = [
        layer(
            {"type": "rect"},
            rows,
            x=x,
            x2={"field": "size"},
            y=pixels("upper"),
            y2={"field": "lower"},
            fill={"field": "fill", "type": "nominal", "scale": None},
        ),
        *_bar_words(_without_words(rows), x, left, layout),
        *_limit(_without_words(rows), x, limit_words, y, broken=layout.labels_above),
    ]
    return chart(
        layers, layout.width, y + 24, {"left": left, "right": right, "top": 4, "bottom": 44}
    )


def _without_words(rows: Sequence[Spec]) -> list[Spec]:
    """Rows for marks that tell nothing of their own."""
    return [{name: value for name, value in row.items() if name != "say"} for row in rows]


def _bar_words(rows: Sequence[Spec], x: Spec, left: int, layout: Layout) -> list[Spec]:
    if layout.labels_above:
        joined = [{**row, "text": f"{row['label']} · {row['words']}", "at": 0} for row in rows]
        return [
            layer(
                {"type": "text", "align": "left", "baseline": "middle"},
                joined,
                x=pixels("at"),
                y=pixels("above"),
                text={"field": "text"},
            )
        ]
    labels = [{**row, "at": -8} for row in rows]
    ends = [{**row, "end": max(row["size"], row["limit"] or 0) if _close(row) else row["size"]}
            for row in rows]  # fmt: skip
    return [
        layer(
            {"type": "text", "align": "right", "baseline": "middle"},
            labels,
            x=pixels("at"),
            y=pixels("middle"),
            text={"field": "label"},
        ),
        layer(
            {"type": "text", "align": "left", "baseline": "middle", "dx": 8},
            ends,
            x={**x, "field": "end"},
            y=pixels("middle"),
            text={"field": "words"},
        ),
    ]


def _close(row: Spec) -> bool:
    """Whether words set at the bar's end would be crossed by the dashed line."""
    limit = row["limit"]
    return limit is not None and row["size"] <= limit < row["size"] + limit * 0.6


def _limit(rows: Sequence[Spec], x: Spec, words: str, bottom: float, broken: bool) -> list[Spec]:
    """One dashed line for each stretch of equal limits; `broken` where words stand between bars."""
    stretches: list[Spec] = []
    for row in rows:
        if row["limit"] is None:
            continue
        if not broken and stretches and stretches[-1]["limit"] == row["limit"]:
            stretches[-1]["to"] = row["to"]
        else:
            stretches.append({"limit": row["limit"], "from": row["from"], "to": row["to"]})
    if not stretches:
        return []
    stretches[-1]["to"] = bottom + 2
    line = {"type": "rule", "stroke": "currentColor", "strokeWidth": 1.6, "strokeDash": [5, 4]}
    label = {**stretches[-1], "words": words, "at": bottom + 13}
    return [
        layer(
            line,
            stretches,
            x={**x, "field": "limit"},
            y=pixels("from"),
            y2={"field": "to"},
        ),
        layer(
            {"type": "text", "align": "center", "baseline": "middle", "fontWeight": "bold"},
            [label],
            x={**x, "field": "limit"},
            y=pixels("at"),
            text={"field": "words"},
        ),
    ]
