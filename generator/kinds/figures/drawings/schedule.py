"""Who does what when: a row a rank, a link or a unit, and a box for each action, with its name.

What is held meanwhile may stand below, as a number for each row or as a curve over the same time; a
play moves a line over all of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from proofbook.generator.kinds.figures import axes
from proofbook.generator.kinds.figures.drawing import LINE, Drawing, PageWidth, text_width
from proofbook.generator.kinds.figures.step_rules import Action, Kind, Overlapped

ROW, HALF = 32, 10.0
LOADED, LOAD = 52, 16  # of a row that has a load: its height, and that of the largest load
CURVE, TITLE = 150, 24  # the height of a curve, and of the title of a group
LOOKS: dict[Kind, tuple[str, str]] = {
    "whole": ("gather faint", ""),
    "gather": ("gather", "ground"),
    "forward": ("compute faint", ""),
    "backward": ("backward", "ground"),
    "reduce": ("communication", "ground"),
    "wait": ("waiting hollow shard", ""),
}
LOOK_OF_LOAD = "span series-e faint"  # as activations in other figures
Rows = Mapping[str, Sequence[Action]]
# How many things each row holds, as a number from each time on.
Loads = Sequence[Sequence[tuple[float, int]]]


class Curve(NamedTuple):
    """What is held in each unit of time, in parts, one on the other."""

    unit: str  # title of its axis
    ticks: Sequence[float]  # of its axis, the same for all states of a figure
    parts: Sequence[tuple[str, str, Sequence[float]]]  # name, look, size in each unit of time
    mark: axes.AxisMark  # the measured peak


def schedule(
    rows: Rows, unit: str, words: Mapping[str, str], layout: PageWidth, *,
    upper: float = 0, longest: float = 0, mark: axes.AxisMark | None = None,
    curve: Curve | None = None, loads: Loads = (), groups: Sequence[str] = (),
) -> Drawing:  # fmt: skip
    """`Drawing` of a timeline: rows of boxes for actions over one axis, a playhead and a legend.

    Args:
        rows: the actions of each, by its name.
        unit: title of the axis.
        words: names of the kinds of actions, and of `idle`.
        layout: the room there is.
        upper: where the rows begin, below what else is drawn.
        longest: where the axis ends at least, so that several drawings have the same.
        mark: when the step was over in a run.
        curve: what is held meanwhile; the time of such a step is the order of its events.
        loads: the same as a number for each row, drawn below it.
        groups: titles above as many rows each, which may be named "title, row".
    """
    drawing, end = Drawing(layout.width), max(action.end for row in rows.values() for action in row)
    mosts = [f"{words['most']} {_most(row)}" for row in loads]
    size = len(rows) // max(len(groups), 1)  # of a group
    titles = [title for title in groups or [""] for _ in range(size)]  # of the group of each row
    labels = [row.removeprefix(f"{title}, ") for row, title in zip(rows, titles, strict=True)]
    above = LINE * (layout.labels_above and bool(loads))  # or names in boxes had no room
    beside = 1 if above else axes.GAP + max(map(text_width, labels + mosts))
    left = max(axes.label_room(curve.ticks) if curve else 0, beside)
    x = axes.Scale(0, max(end, longest, mark.value if mark else 0), left, layout.width - 1)
    top, height = upper + LINE * bool(mark), above + (LOADED if loads else ROW)
    tops = [top + height * n + TITLE * (n // size + 1) * bool(groups) for n in range(len(rows))]
    bottom, first = tops[-1] + height, len(drawing.parts)
    _rows(drawing, rows, words, x.between(0, end), [y + above + ROW / 2 for y in tops])
    used = {action.kind for row in rows.values() for action in row}
    keys = [
        axes.LegendEntry(words[kind], box=f"span {look}")
        for kind, (look, _) in LOOKS.items()
        if kind in used
    ]
    for row, y in zip(loads, tops, strict=False):
        base = y + height - 4
        held = axes.Scale(0, max(map(_most, loads)), base, base - LOAD)
        drawing.area(_stepped([*row, (end, 0)], x, held), LOOK_OF_LOAD)
    if loads:
        keys.append(axes.LegendEntry(words["load"], box=LOOK_OF_LOAD))
    keys.append(axes.LegendEntry(words["idle"], line="waiting"))
    drawing.playhead(first, x(0), x(end), top, bottom)
    for label, most, y in zip(labels, mosts or [""] * len(rows), tops, strict=True):
        if above:
            drawing.word(0, y + LINE / 2 + 2, f"{label}, {most}")
        else:
            drawing.word(x.start - axes.GAP, y + ROW / 2, label, anchor="end")
            drawing.word(x.start - axes.GAP, y + LOADED - 4 - LOAD / 2, most, "soft", "end")
    for title, y in zip(groups, tops[::size], strict=False):
        drawing.word(0, y - TITLE / 2, title, "strong")
    if mark:
        drawing.line(x(mark.value), top, x(mark.value), bottom, "budget")
        drawing.word(x(mark.value), top - LINE / 2, mark.words, "soft", "end")
    if curve:
        bottom = _curve(drawing, curve, x, axes.legend(drawing, keys, bottom + LINE) + 2 * axes.GAP)
        keys = [axes.LegendEntry(name, box=f"span {look}") for name, look, _ in curve.parts]
        keys.append(axes.LegendEntry(curve.mark.words, line="budget"))
    axes.x_axis(drawing, x, bottom, unit, [] if curve else x.ticks(4 if layout.labels_above else 6))
    drawing.height = axes.legend(drawing, keys, bottom + axes.BELOW + LINE / 2) + 2
    return drawing


def _rows(
    drawing: Drawing, rows: Rows, words: Mapping[str, str], x: axes.Scale, middles: Sequence[float]
) -> None:
    """Draw a box for each action, and a line where a row is idle.

    The boxes of a kind are named where each of them has room for its name: some names without the
    others would look like the only ones.
    """
    tight = {
        action.kind for row in rows.values() for action in row
        if text_width(action.name) + 2 > x(action.end) - x(action.start)
    }  # fmt: skip
    for (name, actions), middle in zip(rows.items(), middles, strict=True):
        edges = [x(at) for action in actions for at in (action.start, action.end)]
        for start, end in zip([x.start, *edges[1::2]], [*edges[::2], x.end], strict=True):
            if end > start:
                drawing.line(start, middle, end, middle, "waiting")
        for action in actions:
            look, letters = LOOKS[action.kind]
            start, width = x(action.start), x(action.end) - x(action.start)
            say = f"{name}, {words[action.kind]} {action.name}".rstrip()
            drawing.box(start, middle - HALF, width, 2 * HALF, f"span {look}", say=say)
            inside = "" if action.kind in tight else action.name
            drawing.word(start + width / 2, middle, inside, letters, "middle")


def _most(row: Iterable[tuple[float, int]]) -> int:
    return max(number for _, number in row)


def _stepped(
    heights: Sequence[tuple[float, float]], x: axes.Scale, y: axes.Scale
) -> list[tuple[float, float]]:  # fmt: skip
    """The corners of an area over the axis, in which each height lasts until the next."""
    steps = (
        (x(at), y(height))
        for (start, height), (stop, _) in pairwise(heights)
        if stop > start
        for at in (start, stop)
    )
    return [(x(heights[0][0]), y.start), *steps, (x(heights[-1][0]), y.start)]


def _curve(drawing: Drawing, curve: Curve, x: axes.Scale, top: float) -> float:
    """Draw the parts as areas, one on the other; return the y of their axis."""
    y = axes.Scale(0, curve.ticks[-1], top + LINE + CURVE, top + LINE)
    drawing.word(0, top, curve.unit, "soft")
    axes.grid_lines(drawing, y, x.start, x.end, curve.ticks)
    sums = [0.0] * len(curve.parts[0][2])
    stacked, first = [], len(drawing.parts)
    for _, look, sizes in curve.parts:
        sums = [low + size for low, size in zip(sums, sizes, strict=True)]
        stacked.append(([*enumerate(sums), (len(sums), 0.0)], look))
    for heights, look in reversed(stacked):
        drawing.area(_stepped(heights, x, y), f"span {look}")
    drawing.playhead(first, x(0), x(len(sums)), y.end, y.start)
    drawing.line(x.start, y(curve.mark.value), x.end, y(curve.mark.value), "budget")
    return y.start


# --- a step of DDP

TOP, HEIGHT, APART = 22, 30, 6  # of the boxes of layers
LAYERS = {
    "forward": ("compute faint", ""),
    "backward": ("backward", "ground"),
    "ready": ("collective", "communication"),
    "sent": ("communication", "ground"),
    "averaged": ("layer", ""),
}


def overlap(
    step: Overlapped, rows: Rows, unit: str, words: Mapping[str, str],
    layout: PageWidth, *, longest: float, mark: axes.AxisMark,
) -> Drawing:  # fmt: skip
    """`Drawing` of a DDP step: the state of each layer's gradient above rows of its rank and link.

    The `words` name actions, states of a gradient, and `layer`. The axis ends at `longest` at
    least; the mark is when the step was over in the run.
    """
    upper = TOP + HEIGHT + 12
    drawing = schedule(rows, unit, words, layout, upper=upper, longest=longest, mark=mark)
    num = len(step.computed) // 2
    width = (layout.width - 2 + APART) / num  # a border is drawn whole
    for layer in range(1, num + 1):
        x = 1 + (layer - 1) * width
        middle = x + (width - APART) / 2
        drawing.word(middle, 10, f"{words['layer']} {layer}", "soft", "middle")
        drawing.box(x, TOP, width - APART, HEIGHT, "idle", radius=4)
        for state, start, end in _states(step, layer):
            look, letters = LAYERS[state]
            with drawing.during(start, end):
                drawing.box(x, TOP, width - APART, HEIGHT, look, radius=4)
                drawing.word(middle, TOP + HEIGHT / 2, words[state], letters, "middle")
    return drawing


def _states(step: Overlapped, layer: int) -> Iterator[tuple[str, float, float]]:
    """Yield each state of a layer's gradient with its start and end, as shares of the step."""
    forward, backward = (action for action in step.computed if action.name == str(layer))
    sent = next((action for action in step.sent if action.name == str(layer)), step.sent[-1])
    times = [backward.start, backward.end, sent.start, sent.end, 2 * step.end]
    spans = [("forward", (forward.start, forward.end))]
    spans += zip(("backward", "ready", "sent", "averaged"), pairwise(times), strict=True)
    for state, (start, end) in spans:
        if end > start + 1e-9:
            yield state, round(start / step.end, 4), round(end / step.end, 4)
