"""One stage of the data's way: a lane a rank, what it holds, and what travels between ranks.

Neighbours that send are joined by an arrow across the gap between their lanes; whatever else
travels is a rail at the side, with a head where a rank receives and none where it only gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from generator.figures.drawing import Drawing, fitting, text_width

WIDTH = 344
LEFT, RIGHT = 108, 312  # of the lanes' boxes
RAIL = 338
HEIGHT, GAP, NARROW_GAP = 36, 27, 9
NEXT = 16  # from one line of a box to the next


@dataclass(frozen=True)
class Lane:
    """One rank: what it holds in this run, and what it works on in this stage, if anything."""

    label: str
    works_on: str
    holds: str


@dataclass(frozen=True)
class Travel:
    """One operation between ranks; no source: all give, no destination: all receive."""

    words: str
    source: int | None
    destination: int | None


def lanes(rows: Sequence[Lane], travels: Sequence[Travel], idle: str) -> Drawing:
    """Draw one stage.

    Args:
        rows: the ranks, from rank 0.
        travels: what travels between them; of those that need a rail, the first is drawn.
        idle: words for a rank that takes no part.
    """
    steps = [one for one in travels if _are_neighbours(one)]
    shared = next((one for one in travels if one not in steps), None)
    gap = GAP if steps else NARROW_GAP
    top = 26 if shared else 2
    drawing = Drawing(WIDTH, top + len(rows) * (HEIGHT + gap) - gap + 2)
    tops = [top + position * (HEIGHT + gap) for position in range(len(rows))]
    for lane, y in zip(rows, tops, strict=True):
        _lane(drawing, lane, y, idle)
    for one in steps:
        _between(drawing, one, tops)
    if shared:
        _rail(drawing, shared, tops)
    return drawing


def _lane(drawing: Drawing, lane: Lane, y: float, idle: str) -> None:
    works, middle = bool(lane.works_on), y + HEIGHT / 2
    name = middle - NEXT / 2 if lane.holds else middle
    drawing.word(LEFT - 8, name, lane.label, anchor="end")
    drawing.word(LEFT - 8, middle + NEXT / 2, fitting(lane.holds, LEFT - 8), "soft", "end")
    drawing.box(LEFT, y, RIGHT - LEFT, HEIGHT, "layer" if works else "idle", radius=4)
    lines = _lines(lane.works_on or idle)
    for position, line in enumerate(lines):
        y = middle + NEXT * (position - (len(lines) - 1) / 2)
        drawing.word((LEFT + RIGHT) / 2, y, line, "" if works else "soft", "middle")


def _lines(words: str) -> list[str]:
    """What stands in a box: on one line, or where that is too long, on two, the second from →."""
    if text_width(words) <= RIGHT - LEFT:
        return [words]
    before, arrow, after = words.partition(" → ")
    return [fitting(line, RIGHT - LEFT) for line in (before, f"→ {after}")[: 1 + bool(arrow)]]


def _are_neighbours(travel: Travel) -> bool:
    source, destination = travel.source, travel.destination
    return source is not None and destination is not None and abs(source - destination) == 1


def _between(drawing: Drawing, travel: Travel, tops: Sequence[float]) -> None:
    """An arrow from one lane to the next; what goes up is drawn beside what goes down."""
    assert travel.source is not None
    assert travel.destination is not None
    down = travel.destination > travel.source
    x = LEFT + (60 if down else 130)
    start = tops[travel.source] + (HEIGHT if down else 0)
    end = tops[travel.destination] + (0 if down else HEIGHT)
    drawing.arrow(x, start, x, end)
    drawing.word(x + 8, (start + end) / 2, travel.words, "communication")


def _rail(drawing: Drawing, travel: Travel, tops: Sequence[float]) -> None:
    """A line beside the lanes that take part; its words stand above it."""
    ends = {travel.source, travel.destination}
    taking_part = [at for at in range(len(tops)) if None in ends or at in ends]
    middles = {at: tops[at] + HEIGHT / 2 for at in taking_part}
    drawing.line(RAIL, middles[taking_part[0]], RAIL, middles[taking_part[-1]], "communication")
    drawing.word(WIDTH, 11, travel.words, "communication", "end")
    for at, y in middles.items():
        if at == travel.source or travel.destination not in (None, at):
            drawing.line(RIGHT, y, RAIL, y, "communication")
        else:
            drawing.arrow(RAIL, y, RIGHT, y, both=travel.source is travel.destination)
