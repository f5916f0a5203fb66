"""Ranks as boxes in the frames of their nodes: a strip for each axis, with arrows in its groups.

Two ranks send to each other, more of them around a ring, unless they are a chain. A tree has a row
of ranks above each of its turns.
"""

from collections.abc import Sequence
from itertools import cycle, pairwise
from typing import NamedTuple

from proofbook.generator.kinds.figures.axes import GAP, LegendEntry, legend
from proofbook.generator.kinds.figures.drawing import LINE, Drawing, PageWidth, text_width, wrapped

LOOKS = "series-a", "series-b", "series-d hollow", "series-e hollow shard"  # of the axes in turn
HIGH, TRACK, EDGE = 20, 26, 6  # of a box; from a group to the next; from a frame to what it has
APART = 18  # between nodes
LEAST = 14  # of an arrow with two heads; what is shorter is a line
LEVEL = 50  # from a row of a tree to the next
BACK = 10  # below the boxes of a ring, for the arrow from its last rank to its first


class Strip(NamedTuple):
    """The groups of an axis, each a list of ranks, and words above them."""

    name: str
    words: Sequence[str]
    groups: Sequence[Sequence[int]]
    passes: str  # on the arrow of each pair if that is long enough, or else among the words
    is_chain: bool = False


class MeshPanel(NamedTuple):
    """Ranks, `node` of them on each node, and the strips of the axes."""

    title: str
    num_ranks: int
    node: int
    strips: Sequence[Strip]
    is_tree: bool = False


def meshes(panels: Sequence[MeshPanel], layout: PageWidth) -> Drawing:
    """`Drawing` of meshes of the same ranks, one below another."""
    drawing, y = Drawing(layout.width), 0.0
    names = dict.fromkeys(strip.name for panel in panels for strip in panel.strips)
    looks = dict(zip(names, cycle(LOOKS), strict=False))  # an axis has one in all panels
    for panel in panels:
        drawing.word(0, y + LINE / 2, panel.title, "strong")
        y += LINE * bool(panel.title)
        wide = (layout.width - 2 + APART) / (panel.num_ranks // panel.node) - APART
        frames = [1 + (wide + APART) * node for node in range(panel.num_ranks // panel.node)]
        places = [x + wide / panel.node * (n + 0.5) for x in frames for n in range(panel.node)]
        for node, start in enumerate(frames):
            named = f"node {node}: ranks {node * panel.node}–{(node + 1) * panel.node - 1}"
            name = named if text_width(named) <= wide else str(node)
            drawing.word(start + wide / 2, y + LINE / 2, name, "soft", "middle")
        y += LINE
        ends = [(start, wide) for start in frames]
        if panel.is_tree:
            y = _tree(drawing, panel.strips, y, ends, places)
        for strip in panel.strips[: 0 if panel.is_tree else None]:
            y = _strip(drawing, strip, y, ends, places, looks[strip.name])
    drawing.height = y - GAP + 1
    return drawing


def _strip(
    drawing: Drawing, strip: Strip, y: float, frames: Sequence[tuple[float, float]],
    places: Sequence[float], look: str,
) -> float:  # fmt: skip
    """Draw the groups of an axis, neighbours below each other if they overlap; return y below."""
    first, second, *others = strip.groups[0]
    each = places[1] - places[0]
    wide = min(max(each - LEAST - 2, 17), each - 4, 30)
    room = places[second] - places[first] - wide - text_width(strip.passes)
    passes = strip.passes * (not others and room >= 3 * LEAST)
    words = filter(None, [strip.name, "" if passes else strip.passes, *strip.words])
    for line in wrapped(" · ".join(words), drawing.width):
        drawing.word(0, y + LINE / 2, line)
        y += LINE
    is_ring = bool(others) and not strip.is_chain
    track, back = TRACK + BACK * is_ring, BACK * is_ring
    tracks = max(group[0] % (second - first) for group in strip.groups)
    height = track * tracks + HIGH + back + 2 * EDGE
    for start, size in frames:
        drawing.box(start, y, size, height, "soft hollow", radius=4)
    for group in strip.groups:
        top = y + EDGE + track * (group[0] % (second - first))
        _group(drawing, {rank: places[rank] for rank in group}, top, wide, look, passes, is_ring)
    return y + height + GAP


def _group(
    drawing: Drawing, places: dict[int, float], y: float, wide: float, look: str,
    passes: str, is_ring: bool,
) -> None:  # fmt: skip
    """Draw the boxes of a group, and arrows from each to the next, with what they pass."""
    middle, room = y + HIGH / 2, text_width(passes) + 6
    stroke = look.split()[0]
    for before, after in pairwise(places.values()):
        x1, x2 = before + wide / 2, after - wide / 2
        if x2 - x1 < LEAST - 4 * is_ring:
            drawing.line(x1, middle, x2, middle, stroke)
        else:
            drawing.arrow(x1 + 1, middle, x2 - 1, middle, both=not is_ring, look=stroke)
        if passes:
            drawing.box((x1 + x2 - room) / 2, y + 1, room, HIGH - 2, "ground")
            drawing.word((x1 + x2) / 2, middle, passes, anchor="middle")
    if is_ring:
        first, *_, last = places.values()
        below = y + HIGH + BACK - 1
        drawing.curve([(last, y + HIGH), (last, below), (first, below)], stroke)
        drawing.arrow(first, below, first, y + HIGH + 1, look=stroke)
    for rank, place in places.items():
        _rank(drawing, rank, place, y, wide, look)


def _rank(drawing: Drawing, rank: int, x: float, y: float, wide: float, look: str) -> None:
    drawing.box(x - wide / 2, y, wide, HIGH, look, radius=3)
    letters = "" if "hollow" in look else "ground"
    drawing.word(x, y + HIGH / 2, str(rank) * (wide >= 17), letters, "middle")


def _tree(
    drawing: Drawing, strips: Sequence[Strip], y: float, frames: Sequence[tuple[float, float]],
    places: Sequence[float],
) -> float:  # fmt: skip
    """Draw all ranks below, and above each turn those that go on; return y below."""
    keys = [LegendEntry(strip.name, look) for strip, look in zip(strips, LOOKS, strict=False)]
    y, height = legend(drawing, keys, y + LINE / 2), LEVEL * len(strips) + HIGH + 2 * EDGE
    for start, size in frames:
        drawing.box(start, y, size, height, "soft hollow", radius=4)
    low = y + EDGE + LEVEL * len(strips)
    for strip, look in zip(strips, LOOKS, strict=False):
        top, foot = low - LEVEL + HIGH + 2, low - 1
        for first, second in strip.groups:
            drawing.line(places[first], top, places[first], foot, "grid")
            drawing.arrow(places[second], foot, places[first] + 12, top, both=True, look=look)
            _rank(drawing, first, places[first], low, 30, LOOKS[0])
            _rank(drawing, second, places[second], low, 30, LOOKS[0])
        low -= LEVEL
    _rank(drawing, 0, places[0], low, 30, LOOKS[0])
    return y + height + GAP
