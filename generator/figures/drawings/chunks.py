"""A ring all-reduce, step by step: a row a rank, a cell a chunk, arrows for what was sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from generator.figures.axes import GAP
from generator.figures.drawing import Drawing, Layout, text_width

HEIGHT, BETWEEN, TOP = 34, 24, 40


@dataclass(frozen=True)
class Cell:
    """A chunk on a rank: its value, whether all ranks are in it, and whether it just arrived."""

    words: str
    is_whole: bool
    has_arrived: bool


def chunks(
    frames: Mapping[float, Sequence[Sequence[Cell]]], label: str, chunk: str, layout: Layout
) -> Drawing:  # fmt: skip
    """Draw what every rank holds from each moment of a play on.

    A cell that just arrived has an arrow from its neighbour.

    Args:
        frames: the chunks of each rank, from rank 0, by moment.
        label: what a row is, as in "rank".
        chunk: what a column is, as in "chunk".
        layout: the room there is.
    """
    num = len(frames[0])
    drawing = Drawing(layout.width, TOP + num * (HEIGHT + BETWEEN))
    left = text_width(f"{label} {num - 1}") + GAP
    width = (layout.width - left - 2) / num
    for position in range(num):
        drawing.word(left + width * (position + 0.5), 10, f"{chunk} {position}", "soft", "middle")
        y = TOP + position * (HEIGHT + BETWEEN) + HEIGHT / 2
        drawing.word(left - GAP, y, f"{label} {position}", anchor="end")
    for (start, rows), end in zip(frames.items(), [*list(frames)[1:], 2], strict=True):
        with drawing.during(start, end):
            _frame(drawing, rows, left, width)
    return drawing


def _frame(
    drawing: Drawing, rows: Sequence[Sequence[Cell]], left: float, width: float
) -> None:  # fmt: skip
    for rank, row in enumerate(rows):
        y = TOP + rank * (HEIGHT + BETWEEN)
        for column, cell in enumerate(row):
            x = left + width * column
            look, letters = ("compute", "ground") if cell.is_whole else ("layer", "")
            drawing.box(x + 4, y, width - 8, HEIGHT, look, radius=4)
            drawing.word(x + width / 2, y + HEIGHT / 2, cell.words, letters, "middle")
            if not cell.has_arrived:
                continue
            drawing.arrow(x + width / 2, y - BETWEEN + 4, x + width / 2, y - 2)
            if rank == 0:  # it left the last row at the bottom
                lower = TOP + len(rows) * (HEIGHT + BETWEEN) - BETWEEN
                drawing.arrow(x + width / 2, lower + 2, x + width / 2, lower + BETWEEN - 6)
