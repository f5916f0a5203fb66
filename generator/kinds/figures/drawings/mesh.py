"""Ranks as boxes in the frames of their nodes: a strip for each axis, with arrows in its groups."""

from collections.abc import Sequence
from itertools import cycle, pairwise
from typing import NamedTuple

from proofbook.generator.kinds.figures.axes import GAP
from proofbook.generator.kinds.figures.drawing import LINE, Drawing, PageWidth, text_width, wrapped

LOOKS = "series-a", "series-b", "series-d hollow", "series-e hollow shard"  # of the axes in turn
HIGH, TRACK, EDGE = 20, 26, 6  # of a box; from a group to the next; from a frame to what it has
APART = 18  # between nodes
LEAST = 14  # of an arrow with two heads; what is shorter is a line


class Strip(NamedTuple):
    """The groups of an axis, each a list of ranks, and words above them."""

    name: str
    words: Sequence[str]
    groups: Sequence[Sequence[int]]
    passes: str  # on the arrow of each pair if that is long enough, or else among the words


class MeshPanel(NamedTuple):
    """Ranks, `node` of them on each node, and the strips of the axes."""

    title: str
    num_ranks: int
    node: int
    strips: Sequence[Strip]


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
        for strip in panel.strips:
            ends = [(start, wide) for start in frames]
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
    tracks = max(group[0] % (second - first) for group in strip.groups)
    height = TRACK * tracks + HIGH + 2 * EDGE
    for start, size in frames:
        drawing.box(start, y, size, height, "soft hollow", radius=4)
    for group in strip.groups:
        top = y + EDGE + TRACK * (group[0] % (second - first))
        _group(drawing, {rank: places[rank] for rank in group}, top, wide, look, passes)
    return y + height + GAP


def _group(
    drawing: Drawing, places: dict[int, float], y: float, wide: float, look: str,
    passes: str,
) -> None:  # fmt: skip
    """Draw the boxes of a group, and arrows from each to the next, with what they pass."""
    middle, room = y + HIGH / 2, text_width(passes) + 6
    for before, after in pairwise(places.values()):
        x1, x2 = before + wide / 2, after - wide / 2
        if x2 - x1 < LEAST:
            drawing.line(x1, middle, x2, middle, look.split()[0])
        else:
            drawing.arrow(x1 + 1, middle, x2 - 1, middle, both=True, look=look.split()[0])
        if passes:
            drawing.box((x1 + x2 - room) / 2, y + 1, room, HIGH - 2, "ground")
            drawing.word((x1 + x2) / 2, middle, passes, anchor="middle")
    for rank, place in places.items():
        drawing.box(place - wide / 2, y, wide, HIGH, look, radius=3)
        letters = "" if "hollow" in look else "ground"
        drawing.word(place, middle, str(rank) * (wide >= 17), letters, "middle")
