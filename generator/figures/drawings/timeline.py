"""Who did what when: a row a rank, a box an activity with its name, a thin line for waiting.

A box that is too narrow for its name has a letter. Below stands which names each colour has, and
their letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from generator.figures.axes import BELOW, GAP, Scale, across
from generator.figures.drawing import (
    LINE,
    SIZE,
    SMALL,
    Drawing,
    Layout,
    letters,
    text_width,
    wrapped,
)

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
        words: the activities' names in the legend, and what boxes without a letter are called.
        layout: the room there is; on a narrow page what stands at a row's end is below its name.
        longest: where the axis ends at the least, so that several drawings have the same.
    """
    drawing = Drawing(layout.width)
    left = max(text_width(name) for name, _ in rows) + GAP
    end = max(longest, *(one.end for one in spans))
    room = max(text_width(said) for _, said in rows)
    if layout.labels_above:
        left = max(left, room * SMALL / SIZE + GAP)
    x = Scale(0, end, left, layout.width - (1 if layout.labels_above else room + GAP))
    middles = {name: 2 + ROW * (position + 0.5) for position, (name, _) in enumerate(rows)}
    for one in sorted(spans, key=lambda one: (middles[one.row], one.start)):
        half, width = HALF[one.activity], x(one.end) - x(one.start)
        upper, say = middles[one.row] - half, one.say or one.name
        drawing.box(x(one.start), upper, width, 2 * half, f"span {one.activity}", say=say)
    named = _names(drawing, spans, middles, x)
    for name, said in rows:
        if layout.labels_above and said:
            drawing.word(left - GAP, middles[name] - 7, name, anchor="end")
            drawing.word(left - GAP, middles[name] + 8, said, "soft small", "end")
            continue
        drawing.word(left - GAP, middles[name], name, anchor="end")
        if said:
            drawing.word(x.end + GAP, middles[name], said, "soft")
    bottom = 2 + ROW * len(rows)
    across(drawing, x, bottom, unit, x.ticks(4 if layout.labels_above else 6))
    _legend(drawing, spans, named, words, bottom + BELOW + LINE / 2)
    return drawing


def _names(
    drawing: Drawing, spans: Sequence[Activity], middles: Mapping[str, float], x: Scale
) -> dict[str, str]:
    """Write names, or their letters, where they have room; returns what the legend says of each.

    No two names have the same letter. A name is not in what is returned if no box shows it.
    """
    rooms: dict[str, list[float]] = {}
    for one in spans:
        if one.activity != "waiting":
            rooms.setdefault(one.name, []).append(x(one.end) - x(one.start))
    letter_of: dict[str, str] = {}
    for name, widths in rooms.items():
        free = _first_free(name, letter_of.values())
        if any(width < _needed(name) and letters(free, width) is not None for width in widths):
            letter_of[name] = free
    named: dict[str, str] = {}
    for one in (one for one in spans if one.activity != "waiting"):
        room, middle = x(one.end) - x(one.start), (x(one.start) + x(one.end)) / 2
        has_room = _needed(one.name) <= room
        said = one.name if has_room else letter_of.get(one.name, "")
        look = letters(said, room, "ground")
        if said and look is not None:
            drawing.word(middle, middles[one.row], said, look, "middle")
            letter = letter_of.get(one.name)
            named[one.name] = f"{letter}: {one.name}" if letter else one.name
    return named


def _needed(name: str) -> float:
    """The width of a box that has its whole name."""
    return text_width(name) + 6


def _first_free(name: str, taken: Iterable[str]) -> str:
    """The initial of the first word, or of a later one, or another letter that no name has."""
    letters_of = [*(word[:1] for word in name.split("_")), *name]
    return next((one.upper() for one in letters_of if one.upper() not in {*taken, "_"}), "")


def _legend(
    drawing: Drawing,
    spans: Sequence[Activity],
    named: Mapping[str, str],
    words: dict[str, str],
    y: float,
) -> None:
    """The activities that are drawn: for each its colour, and its names with their letters."""
    x, left = 0.0, SWATCH + GAP
    for activity, half in HALF.items():
        names = dict.fromkeys(one.name for one in spans if one.activity == activity)
        if not names:
            continue
        said = ", ".join(named.get(name, name) for name in names)
        text = words[activity] + (f" ({said})" if activity != "waiting" else "")
        lines = wrapped(text, drawing.width - left)
        if x and (len(lines) > 1 or x + left + text_width(text) > drawing.width):
            x, y = 0.0, y + LINE
        tall = min(2 * half, 11)
        drawing.box(x, y - tall / 2, SWATCH, tall, activity)
        for position, line in enumerate(lines):
            drawing.word(x + left, y + LINE * position, line)
        y += LINE * (len(lines) - 1)
        x += left + 2 * GAP + max(map(text_width, lines))
    drawing.height = y + LINE / 2 + 2
