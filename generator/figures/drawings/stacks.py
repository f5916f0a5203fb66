"""Bars of several parts under a budget line that readers move: what a rank holds at its peak.

The line runs over the bars, with an edge of the ground, which parts it from every look. Words lie
on it, each on a patch of what is below them, so that it crosses none wherever play.js moves it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from generator.figures.axes import BELOW, GAP, Scale, across
from generator.figures.drawing import LINE, Drawing, Layout, number, text_width, wrapped

# Parts in their order, each with its look and that of words on it.
LOOKS = (
    ("series-a", "ground"),
    ("series-e", "ground"),
    ("series-a faint", ""),
    ("series-e faint", ""),
    ("series-b", "ground"),
    ("series-c hollow", ""),
    ("series-e hollow shard", ""),
    ("soft hollow", ""),
)
THICK, ROW, APART, SWATCH = 18, 27, 9, 16
BESIDE = 14  # from the end of the axis to the words
LEAST = 0.3  # of a part, in pixels: what is narrower stands in the table alone
SEEN = 1.5  # what is narrower is there for the keyboard only, and not in the legend
OVER = 3  # how far the line stands out of the bars


@dataclass(frozen=True)
class Part:
    """A part of a bar: which of all parts it is, its size in the unit of the axis, its words."""

    kind: int
    name: str
    size: float
    say: str


@dataclass(frozen=True)
class Stack:
    """A bar: rows of a `group` stand together; `words` tells its sum.

    Attributes:
        limits: where the line has to be for the bar to fit, and where it begins to be marginal; by
            default both are the sum of its parts.
        is_over: whether the words say that it does not fit.
    """

    group: str
    label: str
    parts: tuple[Part, ...]
    words: str
    limits: tuple[float, float] | None = None
    is_over: bool = False

    @property
    def size(self) -> float:
        """The sum of the parts."""
        return sum(part.size for part in self.parts)


def stacks(
    rows: Sequence[Stack],
    names: Sequence[str],
    unseen: str,
    unit: str,
    top: float,
    budget: float,
    layout: Layout,
    said: str = "",
) -> Drawing:
    """Draw the bars.

    Args:
        rows: from top to bottom, in `unit`.
        names: of all kinds of parts, for the legend.
        unseen: what the legend says before the names of parts that are too small to be seen.
        unit: title of the axis, as in "MiB per rank".
        top: the end of the axis, the same for all states of a figure; a longer bar is cut there,
            and two gaps mark it.
        budget: where the line starts.
        layout: the room there is.
        said: the words at the head of a line that nobody moves.
    """
    drawing = Drawing(layout.width)
    left, room = 1.0, 1.0
    if not layout.labels_above:
        left = max(text_width(row.label) for row in rows) + GAP
        room = max(map(_said_width, rows)) + BESIDE + GAP
    x = Scale(0, top, left, layout.width - room)
    y = _legend(drawing, rows, names, unseen, x)
    head, y = y, y + LINE * bool(said)
    uppers: list[float] = []
    group = rows[0].group
    for row in rows:
        y, group = y + APART * (row.group != group), row.group
        y += LINE if layout.labels_above else 0
        uppers.append(y)
        y += THICK + GAP if layout.labels_above else ROW
    bottom = uppers[-1] + THICK + 8
    for row, upper in zip(rows, uppers, strict=True):
        _bar(drawing, row, upper, x)
    _line(drawing, x, budget, head + LINE / 2 if said else uppers[0] - OVER, bottom)
    if said:
        half = text_width(said) / 2
        drawing.word(min(max(x(budget), half), layout.width - half), head, said, "strong", "middle")
    for row, upper in zip(rows, uppers, strict=True):
        _names(drawing, row, upper, x)
        _words(drawing, row, upper, x, layout)
    across(drawing, x, bottom, unit, x.ticks(4 if layout.labels_above else 6))
    drawing.height = bottom + BELOW
    return drawing


def _drawn(row: Stack, x: Scale) -> Iterator[tuple[Part, float, float]]:
    """The parts that are drawn, each with its left side and its width."""
    start = 0.0
    for part in row.parts:
        left, right = x(start), min(x(start + part.size), x.end)
        width = right - left
        start += part.size
        if width >= LEAST:
            yield part, left, width


def _bar(drawing: Drawing, row: Stack, y: float, x: Scale) -> None:
    for part, left, width in _drawn(row, x):
        look = LOOKS[part.kind][0]
        seen = look if width >= SEEN else look.partition(" ")[0]
        drawing.box(left, y, width, THICK, f"span {seen}", say=part.say)
    if row.size > x.high:
        for gap in (4, 8):
            drawing.box(x.end - gap, y, 2, THICK, "ground")


def _names(drawing: Drawing, row: Stack, y: float, x: Scale) -> None:
    """The names of parts, or their first letters, where they have room."""
    for part, left, width in _drawn(row, x):
        look, letters = LOOKS[part.kind]
        fits = part.name if text_width(part.name) + 6 < width else _initial(part.name)
        long = text_width(fits) + 2
        if long + 2 < width:
            middle, patch = left + width / 2, "ground" if "hollow" in look else look
            drawing.box(middle - long / 2, y + 1, long, THICK - 2, patch)
            drawing.word(middle, y + THICK / 2, fits, letters, "middle")


def _initial(name: str) -> str:
    return name[:1].upper()


def _words(drawing: Drawing, row: Stack, y: float, x: Scale, layout: Layout) -> None:
    """The name of a bar, and its sum, to which play.js adds whether it fits."""
    middle, place, side = y + THICK / 2, x.end + BESIDE, ""
    if layout.labels_above:
        middle, place, side = y - LINE / 2, layout.width - 1.0, ' text-anchor="end"'
        drawing.box(0, y - LINE + 1, text_width(row.label) + 2, LINE - 2, "ground")
        wide = _said_width(row)
        drawing.box(place - wide, y - LINE + 1, wide, LINE - 2, "ground")
        drawing.word(0, middle, row.label)
    else:
        drawing.word(x.start - GAP, middle, row.label, anchor="end")
    at = f'x="{number(place)}" y="{number(middle)}"{side}'
    need, least = row.limits or (row.size, row.size)
    limits = f'data-need="{need:.3f}" data-least="{least:.3f}"'
    over = ' class="pb-fails"' if row.is_over else ""
    drawing.parts.append(f"<text {limits} {at}{over}>{row.words}</text>")


def _said_width(row: Stack) -> float:
    """What the sum of a bar takes, with what play.js adds."""
    return max(text_width(f"{row.words} · {word}") for word in ("fits", "marginal"))


def _line(drawing: Drawing, x: Scale, budget: float, top: float, bottom: float) -> None:
    places = f"{number(x.start)} {number(x.end)} {x.high:.6g}"
    at, box = f"translate({number(x(budget))})", f"M-1 {number(top)}h2V{number(bottom)}h-2z"
    drawing.parts.append(f'<path data-scale="{places}" transform="{at}" d="{box}"/>')


def _legend(
    drawing: Drawing, rows: Sequence[Stack], names: Sequence[str], unseen: str, x_of: Scale
) -> float:  # fmt: skip
    """Swatches of the parts that any row shows, in as many lines as they need; returns their end.

    Each holds the letter that stands on a bar which is too narrow for the part's name. The other
    parts that a row has are named behind them.
    """
    drawn = (one for row in rows for one in _drawn(row, x_of))
    used = sorted({part.kind for part, _, width in drawn if width >= SEEN})
    x, y = 0.0, 10.0
    for kind in used:
        width = SWATCH + GAP + text_width(names[kind]) + 2 * GAP
        if x and x + width > drawing.width:
            x, y = 0.0, y + LINE
        look, letters = LOOKS[kind]
        drawing.box(x, y - SWATCH / 2, SWATCH, SWATCH, f"span {look}")
        drawing.word(x + SWATCH / 2, y, _initial(names[kind]), letters, "middle")
        drawing.word(x + SWATCH + GAP, y, names[kind])
        x += width
    others = sorted({part.kind for row in rows for part in row.parts} - {*used})
    said = f"{unseen}: {', '.join(names[kind] for kind in others)}"
    if x + text_width(said) > drawing.width:
        x, y = 0.0, y + LINE
    for line in wrapped(said, drawing.width) if others else ():
        drawing.word(x, y, line, "soft")
        y += LINE
    return y if others else y + LINE
