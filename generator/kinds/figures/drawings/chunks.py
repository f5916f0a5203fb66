"""What each rank holds, step by step: a grid of cells, with arrows for what was sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, chain, groupby, pairwise, starmap

from proofbook.generator.kinds.figures.axes import GAP
from proofbook.generator.kinds.figures.drawing import LINE, Drawing, Operated, PageWidth, text_width

HEIGHT, BETWEEN, TOGETHER, TOP = 34, 24, 2, 52
TRAVEL = 20  # more between rows where numbers travel between ranks
LOOKS = "series-a", "series-b"  # of coloured numbers
BESIDE = " · "  # in a cell's words, between what has a box of its own


@dataclass(frozen=True)
class Cell:
    """A tensor on a rank: what it is, whether it is finished, and where it just came from.

    `came` is `above` from the cell above, in a ring whose last row comes first; `all above` or `all
    below` from the cells of its group in that row, which are summed; `numbers` from those with the
    same numbers. `looks` are those of its numbers, if they have any. A cell is drawn once for all
    moments at which it is equal to itself, where it came from aside.
    """

    words: str
    is_whole: bool
    came: str = field(default="", compare=False)
    looks: Sequence[str] = ()


Row = Sequence[Cell | None]
Rows = Sequence[Row]
Lanes = list[tuple[float, float]]  # from where to where arrows lead


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
    last = list(frames.values())[-1]
    travels = [TRAVEL * any(cell and cell.came == "numbers" for cell in row) for row in last[1:]]
    steps = [
        HEIGHT + (BETWEEN + line + travel if name else TOGETHER)
        for name, travel in zip(rows[1:], travels, strict=True)
    ]
    num_parts = max(max(len(cell.looks), 1) for cell in cells)  # boxes for which a cell has room
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
            spans = list(zip(through, moments, strict=True))
            _draw_cell(drawing, spans, middle, y, width, num_parts)
            came_by = _lanes(last[position - 1], last[position][column], column, group, num_parts)
            lanes = [(start + width * x, start + width * to) for x, to in came_by]
            origins = [cell.came if cell else "" for cell in through]
            for came, alike in groupby(zip(origins, moments, strict=True), lambda span: span[0]):
                times = [time for _, ends in alike for time in ends]
                if came:
                    up = 0 if came == "all below" else line  # no arrow crosses the name
                    with drawing.during(times[0], times[-1]):
                        _arrows(drawing, came, middle, y - up, lanes)
    return drawing


def _lanes(above: Row, cell: Cell | None, column: int, group: int, num_parts: int) -> Lanes:
    """From where to where arrows lead to a cell, in columns; each number has one."""
    if not cell or cell.came != "numbers":
        ranks = range(column - column % group, column - column % group + group)
        return [(rank + 0.5, column + 0.5 + (rank - column) / 8) for rank in ranks]
    places = dict(chain(*starmap(partial(_places, num_parts), enumerate(above))))
    return [(places[word], to) for word, to in _places(num_parts, column, cell)]


def _places(num_parts: int, column: int, cell: Cell | None) -> list[tuple[str, float]]:
    parts = cell.words.split(BESIDE) if cell else []
    return [(word, column + (n + 0.5) / num_parts) for n, word in enumerate(parts)]


def _draw_cell(
    drawing: Drawing, through: Sequence[tuple[Cell | None, tuple[float, float]]],
    middle: float, y: float, width: float, num_parts: int,
) -> None:  # fmt: skip
    """Draw a place of the grid: a box for each tensor while the place holds it, and before, pale.

    Boxes of numbers have the same width in all places, so that more of them are longer.
    """
    if any(cell for cell, _ in through):
        drawing.box(middle - width / 2 + 2, y, width - 4, HEIGHT, "axis hollow", radius=4)
    is_held = through[0][0] is not None
    for cell, alike in groupby(through, lambda span: span[0]):
        times = [time for _, ends in alike for time in ends]
        if cell:
            first = len(drawing.parts)
            with drawing.during(times[0], times[-1]):
                _draw_parts(drawing, cell, middle - width / 2 + 2, y, width - 4, num_parts)
            before = f'<g class="pb-past" data-during="0 {times[0]:g}"><g class="pb-to-come">'
            pale = [before, *drawing.parts[first + 3 : -1], "</g></g>"]
            drawing.parts[first:first] = map(Operated, pale[: 0 if is_held else None])
            is_held = True


def _draw_parts(d: Drawing, cell: Cell, x: float, y: float, width: float, num_parts: int) -> None:
    look = "compute" if cell.is_whole else "layer"
    letters = "ground" if cell.is_whole or cell.looks else ""
    parts = cell.words.split(BESIDE)
    looks = [f"{of_part} span" for of_part in cell.looks] or [look] * len(parts)
    each = width / (num_parts if cell.looks else len(parts))
    for place, (words, look) in enumerate(zip(parts, looks, strict=True)):
        d.box(x + place * each, y, each, HEIGHT, look, radius=4)
        d.word(x + (place + 0.5) * each, y + HEIGHT / 2, words, letters, "middle")


def _arrows(drawing: Drawing, came: str, middle: float, y: float, lanes: Lanes) -> None:
    if came == "above":
        drawing.arrow(middle, y - BETWEEN + 4, middle, y - 2)
        if y == TOP:  # it left the last row at the bottom
            drawing.arrow(middle, drawing.height - BETWEEN + 2, middle, drawing.height - 6)
        return
    start, end = y - BETWEEN - TRAVEL * (came == "numbers") + 2, y - 3
    if came == "all below":
        start, end = y + HEIGHT + BETWEEN - 2, y + HEIGHT + 3
    for origin, to in lanes:
        drawing.arrow(origin, start, to, end)
