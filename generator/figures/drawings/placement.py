"""Which rank holds what, and what travels between ranks in a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_letters

from generator.figures.drawing import LINE, Drawing, Layout, text_width, wrapped

BAR = 26
GAP = 8
MARGIN = 6  # of a whole name in its box
NUMBER_MARGIN = 4  # of a name's number


@dataclass(frozen=True)
class Piece:
    """A layer, or a shard of one, that a rank holds; `size` in any unit."""

    name: str
    size: float
    is_shard: bool


@dataclass(frozen=True)
class Lane:
    """One rank: its name, how much it holds in words, and the pieces."""

    name: str
    held: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Panel:
    """One run: its name, its ranks, and what travels in a step, a line an operation."""

    title: str
    lanes: tuple[Lane, ...]
    travels: tuple[str, ...]


def in_words(panel: Panel) -> str:
    """The panel as a sentence, for those who cannot see it."""
    lanes = "; ".join(
        f"{lane.name} holds {', '.join(piece.name for piece in lane.pieces)}"
        + (f" ({lane.held})" if lane.held else "")
        for lane in panel.lanes
    )
    travels = f" Payload of a step: {'; '.join(panel.travels)}." if panel.travels else ""
    return f"{panel.title}: {lanes}.{travels}"


def panels(runs: Sequence[Panel], layout: Layout) -> Drawing:
    """Every run as a group of rows, a row a rank, its layers as boxes as wide as their bytes."""
    drawing = Drawing(layout.width)
    left = 2 if layout.labels_above else 62
    right = 2 if layout.labels_above else 76  # what a rank holds stands over its boxes, or beside
    room = layout.width - left - right
    widest = max(sum(p.size for p in lane.pieces) for run in runs for lane in run.lanes)
    names = _labels(runs, room / widest)
    y = 4.0
    unnamed: list[str] = []
    for run in runs:
        drawing.word(0, y + 10, run.title, "strong")
        y += 26
        for lane in run.lanes:
            y = _lane(drawing, lane, y, left, room / widest, layout, names, unnamed)
        if run.travels:
            y = _travels(drawing, run, y, layout)
        y += 14
    if unnamed:
        y = _legend(drawing, unnamed, y, left)
    drawing.height = y
    return drawing


def _legend(drawing: Drawing, unnamed: Sequence[str], y: float, left: float) -> float:
    """What boxes of all panels stand for that have no room for a name, in their order."""
    for part in wrapped(" · ".join(dict.fromkeys(unnamed)), drawing.width - left):
        drawing.word(left, y + 8, part, "soft")
        y += LINE
    return y


def _labels(runs: Sequence[Panel], scale: float) -> dict[str, str]:
    """What stands on the box of each name: for `layer3` its number, where one has room for no more.

    All layers are called alike: beside `layer9`, a box with `10` would look like something else.
    """
    pieces = [piece for run in runs for lane in run.lanes for piece in lane.pieces]
    short = {piece.name: piece.name.lstrip(ascii_letters) for piece in pieces}
    is_short = any(
        text_width(piece.name) > piece.size * scale - MARGIN
        and text_width(short[piece.name]) <= piece.size * scale - NUMBER_MARGIN
        for piece in pieces
        if short[piece.name]
    )
    return {name: number if is_short and number else name for name, number in short.items()}


def _lane(
    drawing: Drawing, lane: Lane, y: float, left: float, scale: float, layout: Layout,
    names: Mapping[str, str], unnamed: list[str],
) -> float:  # fmt: skip
    """A rank and its pieces; what the legend has to say of them is added to `unnamed`."""
    if layout.labels_above:
        named = f"{lane.name}: {lane.held}" if lane.held else lane.name
        drawing.word(left, y + 7, named, "soft")
        y += 18
    else:
        drawing.word(left - 10, y + BAR / 2, lane.name, anchor="end")
    x = left
    for piece in lane.pieces:
        width = max(piece.size * scale, 1.5)
        drawing.box(x, y, width, BAR, "layer shard" if piece.is_shard else "layer", radius=1)
        label, letter = names[piece.name], piece.name[:1].upper()
        is_short = label != piece.name
        if text_width(label) <= width - (NUMBER_MARGIN if is_short else MARGIN):
            drawing.word(x + width / 2, y + BAR / 2, label, anchor="middle")
            if is_short and not any(one[0].isdigit() for one in unnamed):
                unnamed.append(f"{label}, …: {piece.name}, …")  # the others follow from the first
        elif not piece.name.lstrip(ascii_letters) and text_width(letter) + 2 <= width:
            drawing.word(x + width / 2, y + BAR / 2, letter, anchor="middle")
            unnamed.append(f"{letter}: {piece.name}")
        else:
            unnamed.append(f"box without a name: {piece.name}")
        x += width
    if lane.held and not layout.labels_above:
        drawing.word(x + 8, y + BAR / 2, lane.held, "soft")
    return y + BAR + GAP


def _travels(drawing: Drawing, run: Panel, y: float, layout: Layout) -> float:
    x = 8 if layout.labels_above else 70
    if len(run.lanes) > 1:
        drawing.arrow(x, y, x, y + LINE * len(run.travels), both=True)
    for line in run.travels:
        for part in wrapped(line, drawing.width - x - 20):
            drawing.word(x + 14, y + 10, part, "communication")
            y += LINE
    return y + 4
