"""Who does what when: a row a rank, a link or a unit, and a box for each action, with its name.

What a rank holds meanwhile may stand below, as a curve over the same time; a play then moves a line
over both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from generator.figures.axes import BELOW, GAP, Scale, across, around, room_for, up
from generator.figures.drawing import LINE, Drawing, Layout, text_width
from generator.figures.schedule_rule import Action, Kind

ROW, HALF, SWATCH = 32, 10.0, 14
LOADED, LOAD = 52, 16  # of a row that has a load: its height, and that of the largest load
CURVE = 150  # the height of a curve
LOOKS: dict[Kind, tuple[str, str]] = {
    "whole": ("communication hollow", ""),
    "gather": ("communication faint", ""),
    "forward": ("compute faint", ""),
    "backward": ("compute", "ground"),
    "reduce": ("communication", "ground"),
    "wait": ("waiting hollow shard", ""),
}


@dataclass(frozen=True)
class Mark:
    """A measured value at its place on an axis, and its words."""

    value: float
    words: str


@dataclass(frozen=True)
class Curve:
    """What is held in each unit of time, in parts, one on the other.

    Attributes:
        unit: title of the axis.
        parts: each with its name, its look, and its size in each unit of time.
        top: what the axis reaches at least, the same for all states of a figure.
        mark: the measured peak.
    """

    unit: str
    parts: Sequence[tuple[str, str, Sequence[float]]]
    top: float
    mark: Mark


LOOK_OF_LOAD = "series-e faint"  # as activations in other figures
# How many things each row holds, as a number from each time on.
Loads = Sequence[Sequence[tuple[float, int]]]


def schedule(
    rows: Mapping[str, Sequence[Action]],
    unit: str,
    words: Mapping[str, str],
    layout: Layout,
    *,
    upper: float = 0,
    longest: float = 0,
    mark: Mark | None = None,
    curve: Curve | None = None,
    loads: Loads | None = None,
) -> Drawing:
    """Draw the actions of each row, up to the end of the last.

    The boxes of a kind are named where each of them has room for its name: some names without the
    others would look like the only ones.

    Args:
        rows: the actions of each, by its name.
        unit: title of the axis.
        words: names of the kinds of actions, and of `idle`.
        layout: the room there is.
        upper: where the rows begin, below what else is drawn.
        longest: where the axis ends at least, so that several drawings have the same.
        mark: when the step was over in a run.
        curve: what is held meanwhile.
        loads: the same as a number for each row, drawn below it.
    """
    drawing = Drawing(layout.width)
    ticks = around(0, max(curve.top, curve.mark.value), 4) if curve else []
    labels = {**rows, **({f"{words['most']} {_most(loads)}": ()} if loads else {})}
    left = max(room_for(ticks), GAP + max(map(text_width, labels)))
    end = max(one.end for actions in rows.values() for one in actions)
    x = Scale(0, max(end, longest, mark.value if mark else 0), left, layout.width - 1)
    top = upper + (LINE if mark else 0)
    height = LOADED if loads else ROW
    _rows(drawing, rows, words, x, top, height)
    bottom = top + 2 + height * len(rows)
    kinds = {one.kind: LOOKS[one.kind][0] for actions in rows.values() for one in actions}
    keys = [(kinds[kind], words[kind]) for kind in LOOKS if kind in kinds]
    below = bottom
    if curve:
        bottom = _curve(drawing, curve, ticks, x, below + 2 * GAP)
        keys += [(f"span {look}", name) for name, look, _ in curve.parts]
    if loads:
        _loads(drawing, loads, words["most"], x, top, end)
        keys.append((LOOK_OF_LOAD, words["load"]))
    drawing.playhead(x(0), x(end), top, below)
    if mark:  # what was measured is veiled at no time
        drawing.line(x(mark.value), top, x(mark.value), bottom, "budget")
        drawing.word(x(mark.value), top - LINE / 2, mark.words, "soft", "end")
    if curve:
        drawing.playhead(x(0), x(end), bottom - CURVE, bottom)
        _measured(drawing, curve, Scale(0, ticks[-1], bottom, bottom - CURVE), x, below + 2 * GAP)
    if curve:  # its time is the order of events, which has no values
        drawing.line(x.start, bottom, x.end, bottom, "axis")
        drawing.word(x.end, bottom + LINE / 2 + 2, unit, "soft", "end")
        bottom += LINE
    else:
        across(drawing, x, bottom, unit, x.ticks(4 if layout.labels_above else 6))
        bottom += BELOW
    keys += [("", words["idle"])] if any(_gaps(one, end) for one in rows.values()) else []
    drawing.height = _legend(drawing, keys, bottom + LINE / 2)
    return drawing


def _rows(
    drawing: Drawing, rows: Mapping[str, Sequence[Action]], words: Mapping[str, str],
    x: Scale, top: float, height: float,
) -> None:  # fmt: skip
    end = max(one.end for actions in rows.values() for one in actions)
    looks = {kind: _names(rows, kind, x) for kind in LOOKS}
    named: dict[str, list[tuple[float, float, str]]] = {}
    for position, (label, actions) in enumerate(rows.items()):
        middle = top + 2 + height * position + ROW / 2
        drawing.word(x.start - GAP, middle, label, anchor="end")
        for start, stop in _gaps(actions, end):
            drawing.line(x(start), middle, x(stop), middle, "waiting")
        for one in actions:
            look, letters_of = LOOKS[one.kind][0], looks[one.kind]
            start, width = x(one.start), x(one.end) - x(one.start)
            say = f"{label}, {words[one.kind]} {one.name}".rstrip()
            drawing.box(start, middle - HALF, width, 2 * HALF, f"span {look}", say=say)
            if letters_of is not None and one.name:
                named.setdefault(letters_of, []).append((start + width / 2, middle, one.name))
    for look, places in named.items():
        drawing.middles(places, look)


def _names(rows: Mapping[str, Sequence[Action]], kind: Kind, x: Scale) -> str | None:
    """The look of the names in all boxes of a kind; None where one would not fit."""
    fit = all(
        text_width(one.name) + 2 <= x(one.end) - x(one.start)
        for actions in rows.values() for one in actions if one.kind == kind
    )  # fmt: skip
    return LOOKS[kind][1] if fit else None


def _gaps(actions: Sequence[Action], end: float) -> list[tuple[float, float]]:
    """When a row does nothing, up to the end of the step."""
    found, free = [], 0.0
    for one in sorted(actions, key=lambda one: one.start):
        if one.start > free:
            found.append((free, one.start))
        free = max(free, one.end)
    return [*found, (free, end)] if end > free else found


def _most(loads: Loads) -> int:
    return max(number for row in loads for _, number in row)


def _loads(
    drawing: Drawing, loads: Loads, most: str, x: Scale, top: float, end: float
) -> None:  # fmt: skip
    for position, row in enumerate(loads):
        base = top + LOADED * (position + 1) - 2
        y = Scale(0, _most(loads), base, base - LOAD)
        times = [*(time for time, _ in row), end]
        places = [
            (x(at), y(number))
            for (start, number), stop in zip(row, times[1:], strict=True)
            for at in (start, stop)
        ]
        drawing.area([(x(times[0]), y.start), *places, (x(end), y.start)], LOOK_OF_LOAD)
        drawing.word(x.start - GAP, y.start - LOAD / 2, f"{most} {_most([row])}", "soft", "end")


def _curve(
    drawing: Drawing, curve: Curve, ticks: Sequence[float], x: Scale, top: float
) -> float:  # fmt: skip
    """The parts as areas of steps; returns where their axis lies."""
    y = Scale(0, ticks[-1], top + LINE + CURVE, top + LINE)
    up(drawing, y, x.start, x.end, ticks)
    below = [0.0] * len(curve.parts[0][2])
    for _, look, sizes in curve.parts:
        above = [low + size for low, size in zip(below, sizes, strict=True)]
        drawing.area([*_steps(above, x, y), *reversed([*_steps(below, x, y)])], f"span {look}")
        below = above
    return y.start


def _measured(drawing: Drawing, curve: Curve, y: Scale, x: Scale, top: float) -> None:
    """The line of a curve, and the words above the curve."""
    height = y(curve.mark.value)
    drawing.line(x.start, height, x.end, height, "budget")
    sample = x.end - text_width(curve.mark.words) - GAP
    drawing.line(sample - 2 * SWATCH, top, sample, top, "budget")
    drawing.word(x.end, top, curve.mark.words, "soft", "end")
    drawing.word(0, top, curve.unit, "soft")


def _steps(heights: Sequence[float], x: Scale, y: Scale) -> Iterator[tuple[float, float]]:
    for time, height in enumerate(heights):
        yield x(time), y(height)
        yield x(time + 1), y(height)


def _legend(drawing: Drawing, keys: Sequence[tuple[str, str]], y: float) -> float:
    """A swatch and a name each, in as many lines as they need; returns where they end."""
    x = 0.0
    for look, name in keys:
        width = SWATCH + GAP + text_width(name)
        if x and x + width > drawing.width:
            x, y = 0.0, y + LINE
        if look:
            drawing.box(x, y - 6, SWATCH, 12, look)
        else:
            drawing.line(x, y, x + SWATCH, y, "waiting")
        drawing.word(x + SWATCH + GAP, y, name)
        x += width + 2 * GAP
    return y + LINE / 2 + 2
