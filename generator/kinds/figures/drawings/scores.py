"""The square of an attention's scores, by the rank that computes each, and how busy ranks are.

Rows are queries and columns keys, from the first token on. Below, each turn lasts as long as its
busiest rank, and is grey where a rank waits.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from proofbook.generator.kinds.figures.axes import GAP
from proofbook.generator.kinds.figures.drawing import LINE, Drawing, PageWidth, text_width

LOOKS = "compute", "communication", "gather", "backward"  # of ranks
SIDE, BAR, BETWEEN = 288, 18, 5


class Run(NamedTuple):
    """Neighbouring cells of a row that a rank computes in a turn."""

    rank: int
    turn: int
    row: int
    first: int
    end: int


class Square(NamedTuple):
    """What is drawn: cells of a side, runs of cells, and each rank's scores by turn."""

    size: int
    runs: Sequence[Run]
    scores: Sequence[Sequence[int]]
    longest: int  # the scores of the busiest ranks of all turns, in the longest state
    below: str


def scores(square: Square, words: tuple[str, str, str], layout: PageWidth) -> Drawing:
    """`Drawing` of the square and of the ranks' turns; `words` name queries, keys and a rank."""
    queries, keys, rank_word = words
    num = len(square.scores[0])
    names = [f"{rank_word} {rank}" for rank in range(len(square.scores))]
    label = max(map(text_width, names)) + GAP
    top, left = 2 * LINE, (layout.width - SIDE) / 2
    bars = top + SIDE + LINE
    drawing = Drawing(layout.width, bars + len(names) * (BAR + BETWEEN) + 1.5 * LINE)
    drawing.word(left, LINE / 2, f"↓ {queries}   → {keys}", "soft")
    cell = SIDE / square.size
    drawing.box(left, top, SIDE, SIDE, "axis hollow")
    slowest = [max(of_turn) for of_turn in zip(*square.scores, strict=True)]
    starts = [0, *accumulate(slowest)]
    scale = (layout.width - label - 2) / square.longest
    for turn in range(num):
        with drawing.during((turn + 1) / num, 2):
            for run in square.runs:
                if run.turn == turn:
                    x, width = left + run.first * cell, (run.end - run.first) * cell
                    drawing.box(x, top + run.row * cell, width, cell, LOOKS[run.rank])
            for rank, of_rank in enumerate(square.scores):
                x, y = label + starts[turn] * scale, bars + rank * (BAR + BETWEEN)
                busy, whole = of_rank[turn] * scale, slowest[turn] * scale
                if busy:
                    drawing.box(x, y, busy, BAR, f"{LOOKS[rank]} span")
                if whole > busy:
                    drawing.box(x + busy, y, whole - busy, BAR, "waiting faint span")
    for rank, name in enumerate(names):
        y = bars + rank * (BAR + BETWEEN) + BAR / 2
        drawing.word(label - GAP, y, name, anchor="end")
    drawing.word(label, drawing.height - LINE / 2, square.below, "soft")
    return drawing
