"""A ring all-reduce between two steps: a row a rank, a cell a chunk, arrows for what was sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from generator.figures.axes import GAP
from generator.figures.drawing import Drawing, Layout, text_width

HEIGHT, BETWEEN, TOP = 34, 24, 40


@dataclass(frozen=True)
class Cell:
    """A chunk on a rank: its value, of how many ranks it is the sum, whether it just arrived."""

    words: str
    num_summed: int
    has_arrived: bool
    say: str


def chunks(
    rows: Sequence[Sequence[Cell]], label: str, chunk: str, layout: Layout
) -> Drawing:  # fmt: skip
    """Draw what every rank holds; a cell that just arrived has an arrow from its neighbour.

    Args:
        rows: the chunks of each rank, from rank 0.
        label: what a row is, as in "rank".
        chunk: what a column is, as in "chunk".
        layout: the room there is.
    """
    num = len(rows)
    drawing = Drawing(layout.width, TOP + num * (HEIGHT + BETWEEN))
    left = text_width(f"{label} {num - 1}") + GAP
    width = (layout.width - left - 2) / num
    for column in range(num):
        drawing.word(left + width * (column + 0.5), 10, f"{chunk} {column}", "soft", "middle")
    for rank, row in enumerate(rows):
        y = TOP + rank * (HEIGHT + BETWEEN)
        drawing.word(left - GAP, y + HEIGHT / 2, f"{label} {rank}", anchor="end")
        for column, cell in enumerate(row):
            x = left + width * column
            is_whole = cell.num_summed == num
            look = "compute" if is_whole else "layer"
            drawing.box(x + 4, y, width - 8, HEIGHT, look, radius=4, say=cell.say)
            letters = "ground" if is_whole else ""
            drawing.word(x + width / 2, y + HEIGHT / 2, cell.words, letters, "middle")
            if cell.has_arrived:  # from the row above; what comes from the last enters at the top
                drawing.arrow(x + width / 2, y - BETWEEN + 4, x + width / 2, y - 2)
    if any(row[column].has_arrived for row in rows[:1] for column in range(num)):
        for column, cell in enumerate(rows[0]):
            if cell.has_arrived:  # and leaves the last row at the bottom
                x = left + width * (column + 0.5)
                y = TOP + num * (HEIGHT + BETWEEN) - BETWEEN
                drawing.arrow(x, y + 2, x, y + BETWEEN - 6)
    return drawing
