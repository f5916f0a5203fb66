"""Bars of several parts: what ranks hold or send, and which layers they have.

A budget line, which readers may move, runs over the bars, with an edge of the ground, which parts
it from every look. Words lie on it, each on a patch of what is below them, so that it crosses none;
where it starts, they stand beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from string import ascii_letters
from typing import NamedTuple

from proofbook.generator.kinds.figures import axes
from proofbook.generator.kinds.figures.drawing import (
    LINE,
    Drawing,
    PageWidth,
    number,
    text_width,
    wrapped,
)

# Kinds of parts in their order, each with its look and that of words on it.
LOOKS = {
    "parameters": ("series-a", "ground"),
    "gradients": ("series-e", "ground"),
    "optimizer": ("series-a faint", ""),
    "activations": ("series-e faint", ""),
    "buckets": ("series-b", "ground"),
    "buffers": ("series-c hollow", ""),
    "allocator": ("series-e hollow shard", ""),
    "outside": ("soft hollow", ""),
    "all_reduce": ("communication", "ground"),
    "all_gather": ("gather", "ground"),
    "reduce_scatter": ("communication hollow", ""),
    "broadcast": ("gather hollow shard", ""),
    "scatter": ("gather hollow", ""),
    "gather": ("gather faint", ""),
    "layer": ("layer", ""),
    "shard": ("layer shard", ""),
}
THICK, APART = 18, 9  # of a bar; between groups, more than between bars
BESIDE = 14  # from the end of the axis to the words
LEAST = 1.5  # of a part, in pixels: what is narrower stands in the table alone
OVER = 3  # how far the line stands out of the bars
STROKES = 14  # at the end of a bar that is cut
EDGE = 5  # from the middle of the line to words beside it


class BarPart(NamedTuple):
    """A part of a bar: its kind, its name, its size in the unit of the axis, and what it says."""

    kind: str
    name: str
    size: float
    say: str


@dataclass(frozen=True)
class Stack:
    """A bar: rows of a `group` stand together; `words` tells its sum."""

    group: str
    label: str
    parts: Sequence[BarPart]
    words: str
    # The budget at which the bar fits, and at which it is marginal, if readers move that line.
    limits: tuple[float, float] | None = None
    is_over: bool = False  # whether the words say that it does not fit
    ending: str = ""  # whether it fits where that line starts

    @property
    def size(self) -> float:
        """The sum of the parts."""
        return sum(part.size for part in self.parts)

    @property
    def width_of_words(self) -> float:
        """In pixels, with the longest verdict that play.js adds to the words."""
        return text_width(f"{self.words} · marginal" if self.limits else self.words)


class Panel(NamedTuple):
    """One run: its name, its ranks, and what travels in a step, a line an operation."""

    title: str
    ranks: Sequence[Stack]
    travels: Sequence[str]


def stacks(
    rows: Sequence[Stack], unit: str, top: float, layout: PageWidth, *,
    budget: axes.AxisMark | None = None,
) -> Drawing:  # fmt: skip
    """`Drawing` of stacked bars, one below another, over an axis titled `unit`; a budget line.

    The axis ends at `top`, the same for all states of a figure; a longer bar is cut there, and two
    strokes mark it.
    """
    drawing, over = Drawing(layout.width), Drawing(layout.width)
    x = _scale(rows, top, layout)
    visible = [part for row in rows for part in row.parts if x(part.size) - x(0) >= LEAST]
    y = _legend(drawing, visible) + axes.GAP
    if budget and budget.words:
        half = text_width(budget.words) / 2
        middle = min(max(x(budget.value), half), layout.width - half)
        over.word(middle, y + axes.GAP, budget.words, "strong", "middle")
        y += axes.GAP + LINE
    upper, group = y, rows[0].group
    for row in rows:
        y, group = y + APART * (row.group != group), row.group
        y = _bar(drawing, over, row, y, x, layout, x(budget.value) if budget else -inf)
    if budget:
        places = f"{number(x.start)} {number(x.end)} {x.high:.6g}"
        # Above the first bar, or below its words if these would cover it.
        start = upper - (LINE / 2 if budget.words else OVER - LINE * layout.labels_above)
        drawing.add(
            "path", "", data_scale=places, transform=f"translate({number(x(budget.value))})",
            d=f"M-1 {number(start)}h2V{number(y)}h-2z",
        )  # fmt: skip
    drawing.parts += over.parts
    axes.x_axis(drawing, x, y, unit, x.ticks(4 if layout.labels_above else 6))
    drawing.height = y + axes.BELOW
    return drawing


def panels(runs: Sequence[Panel], layout: PageWidth) -> Drawing:
    """`Drawing` of runs: a bar of layers for each rank, as wide as their bytes; what travels."""
    drawing = Drawing(layout.width)
    ranks = [rank for run in runs for rank in run.ranks]
    x, y = _scale(ranks, max(rank.size for rank in ranks), layout), 4.0
    for run in runs:
        drawing.word(0, y + 10, run.title, "strong")
        y += LINE + axes.GAP
        for rank in run.ranks:
            y = _bar(drawing, drawing, rank, y, x, layout)
        if run.travels and len(run.ranks) > 1:
            drawing.arrow(
                x.start + axes.GAP, y, x.start + axes.GAP, y + LINE * len(run.travels), both=True
            )
        for line in run.travels:
            for part in wrapped(line, layout.width - x.start - 3 * axes.GAP):
                drawing.word(x.start + 3 * axes.GAP, y + LINE / 2, part, "communication")
                y += LINE
        y += LINE
    drawing.height = y
    return drawing


def _scale(rows: Sequence[Stack], top: float, layout: PageWidth) -> axes.Scale:
    """From zero to the top, with room for the words at both ends of each bar."""
    if layout.labels_above:
        return axes.Scale(0, top, 1, layout.width - 1)
    left = max(text_width(row.label) for row in rows) + axes.GAP
    room = max(row.width_of_words for row in rows) + BESIDE
    return axes.Scale(0, top, left, layout.width - room)


def _bar(
    drawing: Drawing, over: Drawing, row: Stack, y: float, x: axes.Scale, layout: PageWidth,
    line: float = -inf,
) -> float:  # fmt: skip
    """Draw a bar with its words, and the words of its parts over it; return the y below."""
    if layout.labels_above:
        y += LINE * len(_label(row, layout))
    start = 0.0
    for part in row.parts:
        left, right = x(start), min(x(start + part.size), x.end)
        start += part.size
        if right - left >= LEAST:
            look, letters = LOOKS[part.kind]
            drawing.box(left, y, right - left, THICK, f"span {look}", say=part.say)
            right = min(right, x.end - STROKES * (row.size > x.high))
            before, after = line - EDGE - left, right - line - EDGE
            if min(before, after) > -2 * EDGE:  # the larger side of the line
                left, right = (left, line - EDGE) if before > after else (line + EDGE, right)
            name = next((n for n in _names(part) if text_width(n) + 4 <= right - left), "")
            middle, wide = (left + right) / 2, text_width(name) + 2
            if name and over is not drawing:  # a line may cross it
                patch = "ground" if "hollow" in look else look
                over.box(middle - wide / 2, y + 1, wide, THICK - 2, patch)
            over.word(middle, y + THICK / 2, name, letters, "middle")
    if row.size > x.high:
        for before, look in ((6.5, "ground thick"), (4, ""), (9, "")):
            drawing.line(x.end - before, y - 3, x.end - before - 4, y + THICK + 3, look)
    _words(over, row, y, x, layout)
    return y + THICK + axes.GAP


def _names(part: BarPart) -> tuple[str, str]:
    """The words that may stand on a part: its name, else the number in it or its first letter."""
    number_in = part.name.lstrip(f"{ascii_letters} -")
    return part.name, number_in or part.name[:1].upper()


def _words(drawing: Drawing, row: Stack, y: float, x: axes.Scale, layout: PageWidth) -> None:
    """Draw the label of a bar and its sum; play.js sets anew whether it fits."""
    words = f"{row.words} · {row.ending}" if row.ending else row.words
    names = ("data_need", "data_least")
    limits = {name: f"{size:.3f}" for name, size in zip(names, row.limits or (), strict=False)}
    look = "fails" if row.is_over else ""
    if not layout.labels_above:
        drawing.word(x.start - axes.GAP, y + THICK / 2, row.label, anchor="end")
        drawing.word(x.end + BESIDE, y + THICK / 2, words, look, data=limits)
        return
    *before, last = _label(row, layout)
    for above, line in enumerate(reversed(before), 1):
        drawing.box(0.0, y - LINE * above - LINE + 1, text_width(line) + 2, LINE - 2, "ground")
        drawing.word(0, y - LINE * above - LINE / 2, line)
    wide = row.width_of_words
    for left, width in ((0.0, text_width(last) + 2), (layout.width - 1 - wide, wide)):
        drawing.box(left, y - LINE + 1, width, LINE - 2, "ground")
    drawing.word(0, y - LINE / 2, last)
    drawing.word(layout.width - 1, y - LINE / 2, words, look, "end", limits)


def _label(row: Stack, layout: PageWidth) -> list[str]:
    """The label above a bar, in lines beside which its words have room."""
    return wrapped(row.label, layout.width - 1 - row.width_of_words - axes.GAP)


def _legend(drawing: Drawing, visible: Sequence[BarPart]) -> float:
    """Draw a legend of the kinds that are visible, each with its letter; return the y below."""
    parts = {part.kind: part for part in visible if part.name}
    keys = [
        axes.LegendEntry(
            parts[kind].name, box=f"span {look}", letter=(_names(parts[kind])[-1], letters)
        )
        for kind, (look, letters) in LOOKS.items()
        if kind in parts
    ]
    return axes.legend(drawing, keys) if keys else 0
