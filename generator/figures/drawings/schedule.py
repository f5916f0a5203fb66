"""A pipeline's schedule: a row a rank, a box for each forward and backward, with its microbatch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from generator.figures.axes import BELOW, GAP, Scale, across
from generator.figures.drawing import LINE, Drawing, Layout, letters, text_width
from generator.figures.schedule_rule import Action, Kind

ROW, HALF, SWATCH = 32, 10.0, 14
LOOKS: dict[Kind, tuple[str, str]] = {
    "forward": ("compute faint", ""),
    "backward": ("compute", "ground"),
}


def schedule(
    rows: Sequence[Sequence[Action]],
    label: str,
    unit: str,
    words: dict[str, str],
    layout: Layout,
) -> Drawing:
    """Draw the actions of each rank, up to the end of the last.

    The boxes of a kind are numbered where each of them has room for its number: some numbers
    without the others would look like the only ones.

    Args:
        rows: the actions of each rank, from rank 0, in the time that one forward takes.
        label: what a row is, as in "rank".
        unit: title of the axis.
        words: names of `forward`, `backward` and `idle`.
        layout: the room there is.
    """
    drawing = Drawing(layout.width)
    left = text_width(f"{label} {len(rows) - 1}") + GAP
    end = max(one.end for row in rows for one in row)
    x = Scale(0, end, left, layout.width - 1)
    looks = {kind: _numbers(rows, kind, x) for kind in LOOKS}
    numbered: dict[str, list[tuple[float, float, int]]] = {}
    for rank, actions in enumerate(rows):
        middle = 2 + ROW * (rank + 0.5)
        drawing.word(left - GAP, middle, f"{label} {rank}", anchor="end")
        for start, stop in _gaps(actions, end):
            drawing.line(x(start), middle, x(stop), middle, "waiting")
        for one in actions:
            look, numbers = LOOKS[one.kind][0], looks[one.kind]
            start, width = x(one.start), x(one.end) - x(one.start)
            say = f"{label} {rank}, {words[one.kind]} {one.microbatch}"
            drawing.box(start, middle - HALF, width, 2 * HALF, f"span {look}", say=say)
            if numbers is not None:
                numbered.setdefault(numbers, []).append((start + width / 2, middle, one.microbatch))
    for look, places in numbered.items():
        drawing.middles(places, look)
    bottom = 2 + ROW * len(rows)
    across(drawing, x, bottom, unit, x.ticks(4 if layout.labels_above else 6))
    _legend(drawing, words, bottom + BELOW + LINE / 2)
    drawing.height = bottom + BELOW + LINE + 2
    return drawing


def _numbers(rows: Sequence[Sequence[Action]], kind: Kind, x: Scale) -> str | None:
    """The look of the numbers in all boxes of a kind; None where one would not fit."""
    found = [
        letters(str(one.microbatch), x(one.end) - x(one.start), LOOKS[kind][1])
        for row in rows for one in row if one.kind == kind
    ]  # fmt: skip
    if None in found:
        return None
    return max(filter(None, found), key=len, default=LOOKS[kind][1])


def _gaps(actions: Sequence[Action], end: float) -> Iterator[tuple[float, float]]:
    """When a rank does nothing, up to the end of the step."""
    free = 0.0
    for one in actions:
        if one.start > free:
            yield free, one.start
        free = one.end
    if end > free:
        yield free, end


def _legend(drawing: Drawing, words: dict[str, str], y: float) -> None:
    x = 0.0
    looks = {str(kind): look for kind, (look, _) in LOOKS.items()}
    for kind in (*looks, "idle"):
        if kind in looks:
            drawing.box(x, y - 6, SWATCH, 12, looks[kind])
        else:
            drawing.line(x, y, x + SWATCH, y, "waiting")
        drawing.word(x + SWATCH + GAP, y, words[kind])
        x += SWATCH + 3 * GAP + text_width(words[kind])
