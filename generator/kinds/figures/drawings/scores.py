"""The square of an attention's scores, by the rank that computes each, and how busy ranks are.

Rows are queries and columns keys, from the first token on. Below, each turn lasts as long as its
busiest rank, and is grey where a rank waits.
"""

from collections.abc import Sequence
from typing import NamedTuple

from proofbook.generator.kinds.figures.axes import GAP
from proofbook.generator.kinds.figures.drawing import LINE, Drawing, PageWidth, text_width

LOOKS = "compute", "communication", "gather", "backward"  # of ranks
SIDE, BAR, BETWEEN = 288, 18, 5


class Stretch(NamedTuple):
    """Neighbouring cells of a row that a rank computes in a turn."""

    rank: int
    turn: int
    row: int
    first: int
    end: int


class Square(NamedTuple):
    """What is drawn: cells of a side, runs of cells, and each rank's scores by turn."""

    size: int
    runs: Sequence[Stretch]
    scores: Sequence[Sequence[int]]
    longest: int  # the scores of the busiest ranks of all turns, in the longest state
    below: str


def scores(square: Square, words: tuple[str, str, str], layout: PageWidth) -> Drawing:
    """`Drawing` of the square and of the ranks' turns; `words` name queries, keys and a rank."""
    queries, keys, rank_word = words
    names = [f"{rank_word} {rank}" for rank in range(len(square.scores))]
    label = max(map(text_width, names)) + GAP
    bars, num = 3 * LINE + SIDE, len(square.scores[0])
    drawing = Drawing(layout.width, bars + len(names) * (BAR + BETWEEN) + 1.5 * LINE)
    left = (layout.width - SIDE) / 2
    drawing.word(left, LINE / 2, f"↓ {queries}   → {keys}", "soft")
    drawing.box(left, 2 * LINE, SIDE, SIDE, "axis hollow")
    _cells(drawing, square, square.runs, left, "grid faint")
    slowest = [max(of_turn) for of_turn in zip(*square.scores, strict=True)]
    scale, x = (layout.width - label - 2) / square.longest, label
    for turn, whole in enumerate(slowest):
        with drawing.during((turn + 1) / num, 2):
            _cells(drawing, square, [run for run in square.runs if run.turn == turn], left)
            for rank, of_rank in enumerate(square.scores):
                busy, y = of_rank[turn], bars + rank * (BAR + BETWEEN)
                if whole > busy:
                    rest = (whole - busy) * scale
                    drawing.box(x + busy * scale, y, rest, BAR, "waiting faint span")
                drawing.box(x, y, busy * scale, BAR, f"{LOOKS[rank]} span")
        x += whole * scale
    for rank, name in enumerate(names):
        drawing.word(label - GAP, bars + rank * (BAR + BETWEEN) + BAR / 2, name, anchor="end")
    drawing.word(label, drawing.height - LINE / 2, square.below, "soft")
    return drawing


def _cells(
    d: Drawing, square: Square, runs: Sequence[Stretch], left: float, look: str = ""
) -> None:
    cell = SIDE / square.size
    for rank, _, row, first, end in runs:
        x, width = left + first * cell, (end - first) * cell
        d.box(x, 2 * LINE + row * cell, width, cell, look or LOOKS[rank])
