"""What each rank holds, step by step: a grid of cells, with arrows for what was sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from generator.figures.axes import GAP
from generator.figures.drawing import Drawing, Layout, text_width

HEIGHT, BETWEEN, TOP = 34, 24, 52


@dataclass(frozen=True)
class Cell:
    """A tensor on a rank: what it is, whether it is finished, and where it just came from.

    `came` is `above` from the cell above, in a ring whose last row comes first; `all above` or `all
    below` from the cells of its group in that row, which are summed.
    """

    words: str
    is_whole: bool
    came: Literal["", "above", "all above", "all below"] = ""

    @property
    def looks(self) -> tuple[str, bool]:
        """What is drawn of it, but for its arrows."""
        return self.words, self.is_whole


Rows = Sequence[Sequence[Cell | None]]


def chunks(
    frames: Mapping[float, Rows], rows: Sequence[str], columns: Sequence[str], group: int,
    layout: Layout, *, groups: Sequence[str] = (),
) -> Drawing:  # fmt: skip
    """Draw what every cell holds from each moment of a play on.

    Args:
        frames: the cells of each row, by moment; None where nothing is held yet.
        rows: what stands before each row, or above it where cells need the whole width.
        columns: what stands above each column.
        group: how many neighbouring columns are ranks that sum.
        layout: the room there is.
        groups: what stands above each group of columns.
    """
    drawing = Drawing(layout.width, TOP + len(rows) * (HEIGHT + BETWEEN))
    left = max(map(text_width, rows)) + GAP
    cells = [cell for found in frames.values() for row in found for cell in row if cell]
    most = max(text_width(cell.words) for cell in cells)
    is_above = (layout.width - left) / len(columns) < most + GAP
    grid = _Grid(0 if is_above else left, layout.width - 2, len(columns), group)
    heads = [(position * group + (group - 1) / 2, 7, name) for position, name in enumerate(groups)]
    heads += [(position, 22, name) for position, name in enumerate(columns)]
    drawing.middles([(grid.middle(at), y, name) for at, y, name in heads], "soft")
    for position, name in enumerate(rows):
        y = grid.top(position)
        if is_above:
            drawing.word(0, y - BETWEEN / 2, name, "soft")
        else:
            drawing.word(left - GAP, y + HEIGHT / 2, name, anchor="end")
    moments = [*frames, 2.0]
    for (first, last), places in _lasting(list(frames.values())).items():
        with drawing.during(moments[first], moments[last]):
            for row, column, cell in places:
                _cell(drawing, cell, grid, row, column)
    for (start, found), end in zip(frames.items(), moments[1:], strict=True):
        came = [
            (row, column, cell)
            for row, line in enumerate(found) for column, cell in enumerate(line)
            if cell and cell.came
        ]  # fmt: skip
        if came:
            with drawing.during(start, end):
                for row, column, cell in came:
                    _arrows(drawing, cell.came, grid, row, column, len(rows))
    return drawing


class _Grid(NamedTuple):
    """Where cells are."""

    left: float
    right: float
    num: int
    group: int

    @property
    def width(self) -> float:
        return (self.right - self.left) / self.num

    def middle(self, column: float) -> float:
        return self.left + self.width * (column + 0.5)

    def top(self, row: int) -> int:
        return TOP + row * (HEIGHT + BETWEEN)

    def ranks(self, column: int) -> range:
        """The columns that are summed with one."""
        first = column - column % self.group
        return range(first, first + self.group)


def _lasting(frames: Sequence[Rows]) -> dict[tuple[int, int], list[tuple[int, int, Cell]]]:
    """The cells that stay as they are from one frame to another, with their places."""
    found: dict[tuple[int, int], list[tuple[int, int, Cell]]] = {}
    for row, line in enumerate(frames[-1]):
        for column in range(len(line)):
            through = [frame[row][column] for frame in frames]
            start = 0
            for n, cell in enumerate(through):
                following = through[n + 1] if n + 1 < len(through) else None
                if following is None or cell is None or following.looks != cell.looks:
                    if cell:
                        found.setdefault((start, n + 1), []).append((row, column, cell))
                    start = n + 1
    return found


def _cell(drawing: Drawing, cell: Cell, grid: _Grid, row: int, column: int) -> None:
    middle, y = grid.middle(column), grid.top(row)
    look, letters = ("compute", "ground") if cell.is_whole else ("layer", "")
    drawing.box(middle - grid.width / 2 + 2, y, grid.width - 4, HEIGHT, look, radius=4)
    drawing.word(middle, y + HEIGHT / 2, cell.words, letters, "middle")


def _arrows(
    drawing: Drawing, came: str, grid: _Grid, row: int, column: int, num_rows: int
) -> None:  # fmt: skip
    middle, y = grid.middle(column), grid.top(row)
    if came == "above":
        drawing.arrow(middle, y - BETWEEN + 4, middle, y - 2)
        if row == 0:  # it left the last row at the bottom
            lower = grid.top(num_rows) - BETWEEN
            drawing.arrow(middle, lower + 2, middle, lower + BETWEEN - 6)
        return
    start, end = y - BETWEEN + 2.0, y - 3.0
    if came == "all below":
        start, end = y + HEIGHT + BETWEEN - 2, y + HEIGHT + 3
    for other in grid.ranks(column):
        origin = grid.middle(other)
        drawing.arrow(origin, start, middle + (origin - middle) / 8, end)
