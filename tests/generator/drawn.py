"""A drawing as a reader sees it: marks, words, and what the labels of its axes say of a place.

The places of values are worked out again from the labels beside the ticks alone, so that a test of
geometry shares nothing with the code that drew.
"""

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator

from proofbook.generator.figures.drawing import Drawing


class Drawn:
    """The `<svg>` of a drawing, read again."""

    def __init__(self, drawing: Drawing) -> None:
        self.markup = str(drawing.svg("figure-wide", "A title", "A description", "pb-wide"))
        self.tree = ET.fromstring(self.markup)

    def marks(self, kind: str, *looks: str) -> list[ET.Element]:
        """Shapes of a kind that have all of these looks."""
        return [one for one in self.tree.iter(kind) if {f"pb-{look}" for look in looks} <= _of(one)]

    def words(self) -> list[str]:
        """All texts, in the order in which they stand in the file."""
        return [one.text or "" for one in self.tree.iter("text")]

    def says(self) -> list[str]:
        """What the marks tell."""
        return [one.attrib["data-say"] for one in self.tree.iter() if "data-say" in one.attrib]

    def across(self, *, is_logarithmic: bool = False) -> Callable[[float], float]:
        """A value → its place across, by the labels below the ticks."""
        ticks = [
            at(one, "x1") for one in self.marks("line", "axis") if at(one, "y1") < at(one, "y2")
        ]
        labels = [(at(one, "x"), _number(one.text)) for one in self.marks("text", "soft")]
        return _through(ticks, labels, is_logarithmic=is_logarithmic)

    def up(self, *, is_logarithmic: bool = False) -> Callable[[float], float]:
        """A value → its place from the top, by the labels of the grid."""
        lines = [
            at(one, "y1") for one in self.marks("line", "grid") if one.get("y1") == one.get("y2")
        ]
        labels = [(at(one, "y"), _number(one.text)) for one in self.marks("text", "soft")
                  if one.get("text-anchor") == "end"]  # fmt: skip
        return _through(lines, labels, is_logarithmic=is_logarithmic)


def at(mark: ET.Element, name: str) -> float:
    """A number of a mark."""
    return float(mark.attrib[name])


def points(mark: ET.Element) -> Iterator[tuple[float, float]]:
    """The corners of a line or a polygon."""
    for corner in mark.attrib["points"].split():
        x, y = corner.split(",")
        yield float(x), float(y)


def middle(mark: ET.Element) -> tuple[float, float]:
    """The middle of a point, whatever its shape."""
    if mark.tag == "circle":
        return at(mark, "cx"), at(mark, "cy")
    xs, ys = zip(*points(mark), strict=True)
    return (min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2


def _of(mark: ET.Element) -> set[str]:
    return set(mark.get("class", "").split())


def _number(text: str | None) -> float | None:
    written = (text or "").replace(",", "").replace("−", "-")
    try:
        return float(written.removesuffix("%")) / (100 if written.endswith("%") else 1)
    except ValueError:
        return None


def _through(
    lines: list[float], labels: list[tuple[float, float | None]], *, is_logarithmic: bool
) -> Callable[[float], float]:
    known = [(value, line) for line in lines for place, value in labels
             if value is not None and abs(place - line) < 0.2]  # fmt: skip
    scale: Callable[[float], float] = math.log if is_logarithmic else float
    (first, start), (last, end) = min(known), max(known)

    def place(value: float) -> float:
        return start + (scale(value) - scale(first)) / (scale(last) - scale(first)) * (end - start)

    assert len(known) > 1
    assert all(abs(place(value) - where) < 0.2 for value, where in known), known
    return place
