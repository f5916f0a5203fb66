"""One stage of the data's way: a lane a rank, what it holds, and what travels between ranks.

Neighbours that send are joined by an arrow across the gap between their lanes; whatever else
travels is a rail at the side, with a head where a rank receives and none where it only gives.
"""

from collections.abc import Sequence
from typing import NamedTuple

from proofbook.generator.kinds.figures.drawing import Drawing, text_width

IDLE = "takes no part"
WIDTH = 344
LEFT, RIGHT = 108, 312  # of the lanes' boxes
RAIL = 338
HEIGHT, GAP, NARROW_GAP = 36, 27, 9
NEXT = 16  # from one line of a box to the next


class Lane(NamedTuple):
    """One rank: what it holds in this run, and what it works on in this stage, if anything."""

    label: str
    works_on: str
    holds: str


class Travel(NamedTuple):
    """One operation between ranks; no source: all give, no destination: all receive."""

    words: str
    source: int | None
    destination: int | None


def lanes(rows: Sequence[Lane], travels: Sequence[Travel]) -> Drawing:
    """`Drawing` of a lane for each rank, arrows where neighbours send, a rail for other transfers.

    The rail has the ends of the first of these, and the words of all with the same ends.
    """
    steps = [
        (travel.words, travel.source, travel.destination)
        for travel in travels
        if travel.source is not None and travel.destination is not None
        if abs(travel.source - travel.destination) == 1
    ]
    railed = [travel for travel in travels if travel not in steps]
    words = ", ".join(dict.fromkeys(move.words for move in railed if move[1:] == railed[0][1:]))
    shared = railed[0]._replace(words=words) if railed else None
    gap, top = GAP if steps else NARROW_GAP, 26 if shared else 2
    drawing = Drawing(WIDTH, top + len(rows) * (HEIGHT + gap) - gap + 2)
    tops = [top + position * (HEIGHT + gap) for position in range(len(rows))]
    for lane, y in zip(rows, tops, strict=True):
        _lane(drawing, lane, y + HEIGHT / 2)
    for words, source, destination in steps:
        down = destination > source
        x = LEFT + (60 if down else 130)  # what goes up is drawn beside what goes down
        start, end = tops[source] + HEIGHT * down, tops[destination] + HEIGHT * (not down)
        drawing.arrow(x, start, x, end)
        drawing.word(x + 8, (start + end) / 2, words, "communication")
    if shared:
        _rail(drawing, shared, tops)
    return drawing


def _lane(drawing: Drawing, lane: Lane, middle: float) -> None:
    """Draw the box of a rank; words that are too long break before the arrow."""
    drawing.word(LEFT - 8, middle - NEXT / 2 * bool(lane.holds), lane.label, anchor="end")
    drawing.word(LEFT - 8, middle + NEXT / 2, lane.holds, "soft", "end")
    look, letters = ("layer", "") if lane.works_on else ("idle", "soft")
    drawing.box(LEFT, middle - HEIGHT / 2, RIGHT - LEFT, HEIGHT, look, radius=4)
    words = lane.works_on or IDLE
    is_long = text_width(words) > RIGHT - LEFT
    lines = words.replace(" → ", "\n→ ").split("\n") if is_long else [words]
    for position, line in enumerate(lines):
        y = middle + NEXT * (position - (len(lines) - 1) / 2)
        drawing.word((LEFT + RIGHT) / 2, y, line, letters, "middle")


def _rail(drawing: Drawing, travel: Travel, tops: Sequence[float]) -> None:
    """Draw a line beside the lanes that take part, and its words above it."""
    ends = {travel.source, travel.destination}
    middles = {n: y + HEIGHT / 2 for n, y in enumerate(tops) if None in ends or n in ends}
    drawing.line(RAIL, min(middles.values()), RAIL, max(middles.values()), "communication")
    drawing.word(WIDTH, 11, travel.words, "communication", "end")
    for at, y in middles.items():
        if at == travel.source or travel.destination not in (None, at):
            drawing.line(RIGHT, y, RAIL, y, "communication")
        else:
            drawing.arrow(RAIL, y, RIGHT, y, both=travel.source is travel.destination)
