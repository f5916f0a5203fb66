"""A pipeline's schedule: a row a rank, a box for each forward and backward, with its microbatch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from generator.figures.axes import BELOW, GAP, Scale, across
from generator.figures.drawing import LINE, Drawing, Layout, text_width
from generator.figures.schedule_rule import Action

ROW, HALF, SWATCH = 32, 10.0, 14
LOOKS = {"forward": ("compute faint", ""), "backward": ("compute", "ground")}


def schedule(
    rows: Sequence[Sequence[Action]],
    label: str,
    unit: str,
    words: dict[str, str],
    longest: float,
    layout: Layout,
) -> Drawing:
    """Draw the actions of each rank.

    Args:
        rows: the actions of each rank, from rank 0, in the time that one forward takes.
        label: what a row is, as in "rank".
        unit: title of the axis.
        words: names of `forward`, `backward` and `idle`.
        longest: the end of the axis, the same for all states of a figure.
        layout: the room there is.
    """
    drawing = Drawing(layout.width)
    left = text_width(f"{label} {len(rows) - 1}") + GAP
    x = Scale(0, longest, left, layout.width - 1)
    for rank, actions in enumerate(rows):
        middle = 2 + ROW * (rank + 0.5)
        drawing.word(left - GAP, middle, f"{label} {rank}", anchor="end")
        for start, end in _gaps(actions, max(one.end for row in rows for one in row)):
            drawing.line(x(start), middle, x(end), middle, "waiting")
        for one in actions:
            look, letters = LOOKS[one.kind]
            start, width = x(one.start), x(one.end) - x(one.start)
            say = f"{label} {rank}, {words[one.kind]} {one.microbatch}"
            drawing.box(start, middle - HALF, width, 2 * HALF, f"span {look}", say=say)
            name = str(one.microbatch)
            if text_width(name) < width:
                drawing.word(start + width / 2, middle, name, letters, "middle")
    bottom = 2 + ROW * len(rows)
    across(drawing, x, bottom, unit, x.ticks(4 if layout.labels_above else 6))
    _legend(drawing, words, bottom + BELOW + LINE / 2)
    drawing.height = bottom + BELOW + LINE + 2
    return drawing


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
    for kind in ("forward", "backward", "idle"):
        if kind == "idle":
            drawing.line(x, y, x + SWATCH, y, "waiting")
        else:
            drawing.box(x, y - 6, SWATCH, 12, LOOKS[kind][0])
        drawing.word(x + SWATCH + GAP, y, words[kind])
        x += SWATCH + 3 * GAP + text_width(words[kind])
