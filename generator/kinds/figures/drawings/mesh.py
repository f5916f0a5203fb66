"""Ranks as boxes in the frames of their nodes: a strip for each axis, with its groups in a colour.

An arrow between two boxes stays within a frame, or leaves it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from proofbook.generator.kinds.figures.axes import GAP
from proofbook.generator.kinds.figures.drawing import LINE, Drawing, PageWidth, text_width, wrapped

# Of the axes in their order: the look of a group, and that of numbers on its boxes. They differ
# without colour, too.
LOOKS = (
    ("series-a", "ground"), ("series-b", "ground"), ("series-d hollow", ""),
    ("series-e hollow shard", ""),
)  # fmt: skip
HIGH, TRACK, EDGE = 20, 26, 5  # of a box; from a group to the next; from a frame to what it has
APART = 18  # between nodes
BESIDE = 168  # for the words beside a strip
LEAST = 14  # of an arrow with two heads; what is shorter is a line


@dataclass(frozen=True)
class Strip:
    """The groups of an axis, each a list of ranks; its place among the axes, and its words."""

    name: str
    words: Sequence[str]
    groups: Sequence[Sequence[int]]
    place: int = 0
    passes: str = ""  # on the arrow of each pair if that is long enough, or else among the words


@dataclass(frozen=True)
class MeshPanel:
    """Ranks, `node` of them on each node, what a mark of each says, and the strips of the axes."""

    title: str
    node: int
    ranks: Sequence[str]
    strips: Sequence[Strip]


def meshes(panels: Sequence[MeshPanel], layout: PageWidth) -> Drawing:
    """`Drawing` of meshes of the same ranks, one below another."""
    drawing, y = Drawing(layout.width), 0.0
    for panel in panels:
        if panel.title:
            drawing.word(0, y + LINE / 2, panel.title, "strong")
            y += LINE + GAP / 2
        y = _panel(drawing, panel, y, layout) + GAP
    drawing.height = y - GAP + 1
    return drawing


def _panel(drawing: Drawing, panel: MeshPanel, y: float, layout: PageWidth) -> float:
    """Draw the ranks by their nodes, and a strip for each axis; return the y below."""
    left, num = (1 if layout.labels_above else BESIDE), len(panel.ranks)
    nodes = range(0, num, panel.node)
    each = (layout.width - 1 - left - APART * (len(nodes) - 1)) / num
    middles = [left + (rank + 0.5) * each + APART * (rank // panel.node) for rank in range(num)]
    spans = [(middles[first] - each / 2, each * panel.node) for first in nodes]
    for number, (start, wide) in enumerate(spans):
        called = f"node {number}" if text_width(f"node {number}") <= wide else str(number)
        drawing.word(start + wide / 2, y + LINE / 2, called, "soft", "middle")
    y = _frames(drawing, spans, y + LINE, HIGH + 2 * EDGE)
    wide = min(each - 8, 64)
    is_named = text_width(f"rank {num}") <= wide - 4
    for rank, (middle, said) in enumerate(zip(middles, panel.ranks, strict=True)):
        drawing.box(middle - wide / 2, y - HIGH - EDGE, wide, HIGH, "hollow", radius=3, say=said)
        name = f"rank {rank}" if is_named else str(rank)
        drawing.word(middle, y - HIGH / 2 - EDGE, name, anchor="middle")
    for strip in panel.strips:
        y = _strip(drawing, strip, y + GAP, spans, middles, layout)
    return y


def _frames(
    drawing: Drawing, spans: Sequence[tuple[float, float]], y: float, height: float
) -> float:
    """Draw the frames of the nodes; return the y below."""
    for start, wide in spans:
        drawing.box(start, y, wide, height, "soft hollow", radius=4)
    return y + height


def _strip(
    drawing: Drawing, strip: Strip, y: float, spans: Sequence[tuple[float, float]],
    middles: Sequence[float], layout: PageWidth,
) -> float:  # fmt: skip
    """Draw the groups of an axis, those that overlap below each other; return the y below."""
    wide = min(middles[1] - middles[0] - 4, 30)
    first, second = strip.groups[0][:2]
    room = middles[second] - middles[first] - wide - text_width(strip.passes)
    is_on = len(strip.groups[0]) == 2 and room >= 3 * LEAST
    tracks = _tracks(strip.groups)
    words = [*([] if is_on else [strip.passes]), *strip.words]
    height = TRACK * len(tracks) + 2 * EDGE - (TRACK - HIGH)
    if layout.labels_above:
        for line in wrapped(" · ".join(filter(None, [strip.name, *words])), layout.width):
            drawing.word(0, y + LINE / 2, line)
            y += LINE
    else:
        beside = [part for word in filter(None, words) for part in wrapped(word, BESIDE - GAP)]
        drawing.word(0, y + LINE / 2, strip.name, "strong")
        for number, line in enumerate(beside, 1):
            drawing.word(0, y + LINE * (number + 0.5), line)
        height = max(height, LINE * (len(beside) + 1))
    below = _frames(drawing, spans, y, height)
    top = y + (height - TRACK * len(tracks) + (TRACK - HIGH)) / 2
    look = LOOKS[strip.place % len(LOOKS)]
    for number, groups in enumerate(tracks):
        for group in groups:
            places, passes = [middles[rank] for rank in group], strip.passes if is_on else ""
            _group(drawing, group, places, top + number * TRACK, wide, look, passes)
    return below


def _tracks(groups: Sequence[Sequence[int]]) -> list[list[Sequence[int]]]:
    """The groups in as few lines as hold them side by side."""
    tracks: list[list[Sequence[int]]] = []
    for group in groups:
        free = next((track for track in tracks if track[-1][-1] < group[0]), None)
        if free is None:
            tracks.append([group])
        else:
            free.append(group)
    return tracks


def _group(
    drawing: Drawing, group: Sequence[int], places: Sequence[float], y: float, wide: float,
    looks: tuple[str, str], passes: str,
) -> None:  # fmt: skip
    """Draw the boxes of a group, and arrows from each to the next, with what they pass."""
    look, letters = looks
    middle, colour, half = y + HIGH / 2, look.split()[0], wide / 2
    for start, end in pairwise(places):
        x1, x2 = start + half, end - half
        if x2 - x1 < LEAST:
            drawing.line(x1, middle, x2, middle, colour)
            continue
        drawing.arrow(x1 + 1, middle, x2 - 1, middle, both=True, look=colour)
        if passes:
            room = text_width(passes) + 6
            drawing.box((x1 + x2 - room) / 2, y + 1, room, HIGH - 2, "ground")
            drawing.word((x1 + x2) / 2, middle, passes, anchor="middle")
    for rank, place in zip(group, places, strict=True):
        drawing.box(place - half, y, wide, HIGH, look, radius=3)
        drawing.word(place, middle, str(rank) if wide >= 17 else "", letters, "middle")
