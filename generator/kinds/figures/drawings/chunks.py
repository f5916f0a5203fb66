"""What each rank holds, step by step: a grid of cells, with arrows for what was sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, pairwise

from proofbook.generator.kinds.figures.axes import GAP
from proofbook.generator.kinds.figures.drawing import LINE, Drawing, PageWidth, text_width

HEIGHT, BETWEEN, TOGETHER, TOP = 34, 24, 2, 52
BESIDE = " · "  # in a cell's words, between what has a box of its own


@dataclass(frozen=True)
class Cell:
    """A tensor on a rank: what it is, whether it is finished, and where it just came from.

    `came` is `above` from the cell above, in a ring whose last row comes first; `all above` or `all
    below` from the cells of its group in that row, which are summed. A cell is drawn once for all
    moments at which it is equal to itself, where it came from aside.
    """

    words: str
    is_whole: bool
    came: str = field(default="", compare=False)


Rows = Sequence[Sequence[Cell | None]]


def chunks(
    frames: Mapping[float, Rows], rows: Sequence[str], columns: Sequence[str], group: int,
    layout: PageWidth, *, groups: Sequence[str] = (),
) -> Drawing:  # fmt: skip
    """`Drawing` of a grid: what cells hold from each moment of a play on, and arrows for sends.

    The frames are the cells of each row, by moment; None where nothing is held yet. Names of rows
    stand above them where cells need the whole width. A `group` is how many neighbouring columns
    are ranks that sum, and `groups` are the titles above these.
    """
    left = max(map(text_width, rows)) + GAP
    cells = [cell for frame in frames.values() for row in frame for cell in row if cell]
    most = max(text_width(cell.words) for cell in cells)
    is_above = (layout.width - left) / len(columns) < most + GAP
    start, line = (0, LINE) if is_above else (left, 0)
    # A row without a name continues the one above.
    steps = [HEIGHT + (BETWEEN + line if name else TOGETHER) for name in rows[1:]]
    tops = list(accumulate(steps, initial=TOP + line))
    drawing = Drawing(layout.width, tops[-1] + HEIGHT + BETWEEN)
    width = (layout.width - 2 - start) / len(columns)
    middles = [start + width * (column + 0.5) for column in range(len(columns))]
    for position, name in enumerate(groups):
        drawing.word(middles[position * group] + width * (group - 1) / 2, 7, name, "soft", "middle")
    for middle, name in zip(middles, columns, strict=True):
        drawing.word(middle, 22, name, "soft", "middle")
    moments = list(pairwise([*frames, 2.0]))
    for position, (name, y) in enumerate(zip(rows, tops, strict=True)):
        if is_above:
            drawing.word(0, y - line / 2, name, "soft")
        else:
            drawing.word(left - GAP, y + HEIGHT / 2, name, anchor="end")
        for column, middle in enumerate(middles):
            through = [frame[position][column] for frame in frames.values()]
            _draw_cell(drawing, list(zip(through, moments, strict=True)), middle, y, width)
            ranks = middles[column - column % group :][:group]
            origins = [cell.came if cell else "" for cell in through]
            for came, alike in groupby(zip(origins, moments, strict=True), lambda span: span[0]):
                times = [time for _, ends in alike for time in ends]
                if came:
                    up = 0 if came == "all below" else line  # no arrow crosses the name
                    with drawing.during(times[0], times[-1]):
                        _arrows(drawing, came, middle, y - up, ranks)
    return drawing


def _draw_cell(
    drawing: Drawing, through: Sequence[tuple[Cell | None, tuple[float, float]]],
    middle: float, y: float, width: float,
) -> None:  # fmt: skip
    """Draw a place of the grid: an outline, and a box for each tensor while the place holds it."""
    if any(cell for cell, _ in through):
        drawing.box(middle - width / 2 + 2, y, width - 4, HEIGHT, "axis hollow", radius=4)
    for cell, alike in groupby(through, lambda span: span[0]):
        times = [time for _, ends in alike for time in ends]
        if cell:
            look, letters = ("compute", "ground") if cell.is_whole else ("layer", "")
            with drawing.during(times[0], times[-1]):
                parts = cell.words.split(BESIDE)
                each = (width - 4) / len(parts)
                for place, words in enumerate(parts):
                    x = middle - width / 2 + 2 + place * each
                    drawing.box(x, y, each, HEIGHT, look, radius=4)
                    drawing.word(x + each / 2, y + HEIGHT / 2, words, letters, "middle")


def _arrows(drawing: Drawing, came: str, middle: float, y: float, ranks: Sequence[float]) -> None:
    if came == "above":
        drawing.arrow(middle, y - BETWEEN + 4, middle, y - 2)
        if y == TOP:  # it left the last row at the bottom
            drawing.arrow(middle, drawing.height - BETWEEN + 2, middle, drawing.height - 6)
        return
    start, end = y - BETWEEN + 2, y - 3
    if came == "all below":
        start, end = y + HEIGHT + BETWEEN - 2, y + HEIGHT + 3
    for origin in ranks:
        drawing.arrow(origin, start, middle + (origin - middle) / 8, end)
