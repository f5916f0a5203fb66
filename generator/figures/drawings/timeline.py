"""Who did what when: a row a rank, a box an activity with its name, a thin line for waiting.

A box that is too narrow for its name has the first letter, which stands below with the name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from generator.figures.axes import BELOW, GAP, Scale, across
from generator.figures.drawing import LINE, Drawing, Layout, letters, text_width, wrapped

HALF = {"compute": 10.0, "communication": 10.0, "waiting": 1.5}  # of a box's height, in pixels
ROW = 32
SWATCH = 14


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
    longest: float = 0,
) -> Drawing:
    """Draw one step.

    Args:
        rows: names of the rows, from top to bottom, each with what stands at its end.
        spans: what each did, in `unit`.
        unit: title of the axis.
        words: the activities' names in the legend.
        layout: the room there is; on a narrow page what stands at a row's end is left out.
        longest: where the axis ends at the least, so that several drawings have the same.
    """
    drawing = Drawing(layout.width)
    left = max(text_width(name) for name, _ in rows) + GAP
    ends = [] if layout.labels_above else [text_width(said) + GAP for _, said in rows if said]
    end = max(longest, *(one.end for one in spans))
    x = Scale(0, end, left, layout.width - max(ends, default=1))
    middles = {name: 2 + ROW * (position + 0.5) for position, (name, _) in enumerate(rows)}
    for one in sorted(spans, key=lambda one: (middles[one.row], one.start)):
        half, width = HALF[one.activity], x(one.end) - x(one.start)
        upper, say = middles[one.row] - half, one.say or one.name
        drawing.box(x(one.start), upper, width, 2 * half, f"span {one.activity}", say=say)
    short = _names(drawing, spans, middles, x)
    for name, said in rows:
        drawing.word(left - GAP, middles[name], name, anchor="end")
        if ends and said:
            drawing.word(x.end + GAP, middles[name], said, "soft")
    bottom = 2 + ROW * len(rows)
    across(drawing, x, bottom, unit, x.ticks(4 if layout.labels_above else 6))
    _legend(drawing, words, left, bottom + BELOW + LINE / 2)
    drawing.height = bottom + BELOW + LINE + 2
    said = " · ".join(f"{letter}: {name}" for letter, name in short.items())
    for line in wrapped(said, layout.width) if said else ():
        drawing.word(0, drawing.height + LINE / 2 - 2, line, "soft")
        drawing.height += LINE
    return drawing


def _names(
    drawing: Drawing, spans: Sequence[Activity], middles: Mapping[str, float], x: Scale
) -> dict[str, str]:
    """Write the names that have room; returns what the letters stand for that are written instead.

    A letter stands for the first name that needs it.
    """
    short: dict[str, str] = {}
    for one in (one for one in spans if one.activity != "waiting"):
        room, middle = x(one.end) - x(one.start), (x(one.start) + x(one.end)) / 2
        has_room = text_width(one.name) + 6 < room
        name = one.name if has_room else one.name[:1].upper()
        look = letters(name, room, "ground", margin=0.5)
        if look is None or (not has_room and short.setdefault(name, one.name) != one.name):
            continue
        drawing.word(middle, middles[one.row], name, look, "middle")
    return short


def _legend(drawing: Drawing, words: dict[str, str], x: float, y: float) -> None:
    """The activities in one row."""
    if x + sum(SWATCH + 3 * GAP + text_width(words[one]) for one in HALF) > drawing.width:
        x = 0
    for activity, half in HALF.items():
        tall = min(2 * half, 11)
        drawing.box(x, y - tall / 2, SWATCH, tall, activity)
        drawing.word(x + SWATCH + GAP, y, words[activity])
        x += SWATCH + 3 * GAP + text_width(words[activity])
