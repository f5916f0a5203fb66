"""Every rank's need as a bar against one dashed budget line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from generator.figures.axes import BELOW, GAP, Scale, across
from generator.figures.drawing import LINE, Drawing, Layout, text_width, wrapped

Tone = Literal["refused", "completed", "plain", "sent"]
TONES: dict[Tone, str] = {
    "refused": "fails", "completed": "compute", "plain": "compute", "sent": "communication",
}  # fmt: skip
THICK = 14  # of a bar
ROW = 25  # from bar to bar where labels stand beside them
APART = 10  # between groups, more than between bars
LABELS = 8  # between a bar and the next one's words above it


@dataclass(frozen=True)
class Bar:
    """One bar: `size` in the unit of the axis, `words` beside it, rows of a `group` together."""

    group: str
    label: str
    size: float
    words: str
    tone: Tone
    limit: float | None = None  # the dashed line
    say: str = ""  # the row in words
    opens: str = ""  # the number of its value among the page's sources


@dataclass(frozen=True)
class _Row:
    """A bar and where it stands: its upper side, and the words above it."""

    bar: Bar
    upper: float
    above: tuple[str, ...] = ()


def memory_bars(
    bars: Sequence[Bar], unit: str, limit_words: str, layout: Layout, least_top: float = 0
) -> Drawing:
    """Every row's need as a bar against a dashed line.

    Args:
        bars: rows from top to bottom, sizes and limits in `unit`.
        unit: title of the axis, as in "MiB per rank".
        limit_words: what the dashed line is, as in "budget 320 MiB".
        layout: the room there is.
        least_top: where the axis ends at the least, so that several drawings have the same.
    """
    drawing = Drawing(layout.width)
    rows = _rows(bars, layout)
    x = _scale(bars, layout, least_top)
    for row in rows:
        bar = row.bar
        say = bar.say or f"{bar.label}: {bar.words}"
        look = TONES[bar.tone]
        width = x(bar.size) - x.start
        drawing.box(x.start, row.upper, width, THICK, look, say=say, opens=bar.opens)
    for row in rows:
        _words(drawing, row, x)
    bottom = rows[-1].upper + THICK + 8
    if any(bar.limit for bar in bars):
        bottom = _limits(drawing, rows, x, limit_words, bottom)
    across(drawing, x, bottom, unit, x.ticks(4 if layout.labels_above else 6))
    drawing.height = bottom + BELOW
    return drawing


def _rows(bars: Sequence[Bar], layout: Layout) -> list[_Row]:
    rows: list[_Row] = []
    y, group = 4.0, bars[0].group
    for bar in bars:
        y, group = y + APART * (bar.group != group), bar.group
        if layout.labels_above:
            above = tuple(wrapped(" · ".join(filter(None, (bar.label, bar.words))), layout.width))
            rows.append(_Row(bar, y + LINE * len(above) - 2, above))
            y = rows[-1].upper + THICK + LABELS
        else:
            rows.append(_Row(bar, y))
            y += ROW
    return rows


def _scale(bars: Sequence[Bar], layout: Layout, least_top: float) -> Scale:
    """From zero to the largest size or limit, with room for the words at both ends of a bar."""
    largest = max(value for bar in bars for value in (bar.size, bar.limit or 0))
    top = max(largest, least_top) * 1.02 or 1
    if layout.labels_above:
        return Scale(0, top, 1, layout.width - 1)
    left = max(text_width(bar.label) for bar in bars) + GAP
    end = layout.width - 2.0
    for bar in bars:  # the words stand behind the bar, or behind the dashed line next to its end
        furthest = max(bar.size, bar.limit or 0)
        words = text_width(bar.words) + GAP + 2
        end = min(end, left + (layout.width - left - words) * top / furthest if furthest else end)
    return Scale(0, top, left, end)


def _words(drawing: Drawing, row: _Row, x: Scale) -> None:
    bar, middle = row.bar, row.upper + THICK / 2
    for position, text in enumerate(reversed(row.above)):
        drawing.word(0, row.upper - 9 - LINE * position, text)
    if not row.above:
        if bar.label:
            drawing.word(x.start - GAP, middle, bar.label, anchor="end")
        drawing.word(_behind(bar, x) + GAP, middle, bar.words)


def _behind(bar: Bar, x: Scale) -> float:
    """The end of a bar, or of the dashed line where that would cross the words."""
    end = x(bar.size)
    if bar.limit is None:
        return end
    line = x(bar.limit)
    crosses = end - GAP <= line <= end + 2 * GAP + text_width(bar.words)
    return max(end, line) if crosses else end


def _limits(
    drawing: Drawing, rows: Sequence[_Row], x: Scale, words: str, bottom: float
) -> float:  # fmt: skip
    """One dashed line for each stretch of equal limits, and below them what they are.

    Where words stand between the bars, each bar has a line of its own. Returns where the words end.
    """
    stretches: list[tuple[float, float, float]] = []
    for row in rows:
        if row.bar.limit is None:
            continue
        upper, lower = row.upper - 2, row.upper + THICK + 4
        if stretches and stretches[-1][0] == row.bar.limit and not row.above:
            upper = stretches.pop()[1]
        stretches.append((row.bar.limit, upper, lower))
    stretches[-1] = (*stretches[-1][:2], bottom)
    for limit, upper, lower in stretches:
        drawing.line(x(limit), upper, x(limit), lower, "budget")
    half = text_width(words, bold=True) / 2
    middle = max(half, min(x(stretches[-1][0]), drawing.width - half))
    drawing.word(middle, bottom + LINE / 2, words, "strong", "middle")
    return bottom + LINE + 2
