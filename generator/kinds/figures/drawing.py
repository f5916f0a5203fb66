"""Drawings: shapes and words at places in pixels → one inline `<svg>`.

Flow: a function of `drawings/` adds boxes, lines, points and words to a `Drawing`, with the scales
and axes of `axes.py` where it needs them; `svg` writes them in that order. A drawing holds neither
colours nor fonts: each shape has classes, and `drawings.css` says what they look like.

Text is taken to be as wide as in the widest font that a reader may have: for each letter, the wider
of Liberation Sans (Arial and Helvetica have its widths) and DejaVu Sans, the only one on many
machines. Words then end where a drawing expects it or earlier, and no byte depends on fonts.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import Literal

from markupsafe import Markup

SIZE = 13  # of all text, in pixels; `drawings.css` says it once for every drawing
REM = 20  # pixels, in which a drawing is shown as large as it is drawn
LINE = 20  # from one line of text to the next
# Letters by their width, in thousandths of the size; every other letter counts as `OTHER`.
WIDTHS = {
    278: "'ijl", 295: "I", 318: " ,.\u00a0‘’", 337: "/:;\\|·", 361: "-f", 401: "!()[]t", 411: "r",
    460: '"', 500: "*J_`°–", 531: "?sz“”", 557: "Lc", 592: "kvxy", 667: "EKPSY", 686: "ABVXZ",
    732: "CRU", 752: "HN", 780: "&DG", 787: "OQ", 818: "w", 838: "#+<=>~−×÷±≤≥", 863: "M", 950: "%",
    974: "m", 1000: "→←…—@W",
}  # fmt: skip
OTHER = 636
_WIDTH_OF = {letter: width for width, letters in WIDTHS.items() for letter in letters}
# Corners of points, as parts of the radius of a circle that looks as large.
SHAPES = {
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "triangle": ((0, -1.25), (1.2, 0.83), (-1.2, 0.83)),
    "diamond": ((0, -1.35), (1.05, 0), (0, 1.35), (-1.05, 0)),
    "cross": (
        (-0.4, -1.2), (0.4, -1.2), (0.4, -0.4), (1.2, -0.4), (1.2, 0.4), (0.4, 0.4),
        (0.4, 1.2), (-0.4, 1.2), (-0.4, 0.4), (-1.2, 0.4), (-1.2, -0.4), (-0.4, -0.4),
    ),
}  # fmt: skip
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True)
class PageWidth:
    """How much room a drawing has; `wide` for a column of text, `narrow` for a phone."""

    name: Literal["wide", "narrow"]
    width: int
    labels_above: bool  # row labels over the marks instead of beside them


WIDE = PageWidth("wide", 720, labels_above=False)
NARROW = PageWidth("narrow", 358, labels_above=True)


def text_width(text: str) -> float:
    """The width of a line of text, in pixels."""
    return sum(_WIDTH_OF.get(letter, OTHER) for letter in text) * SIZE / 1000


def wrapped(text: str, width: float) -> list[str]:
    """A list of a text's lines, each within a width in pixels; a word that is wider stays whole."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def number(value: float) -> str:
    """A length in pixels as text, rounded to a tenth."""
    return f"{round(value, 1) + 0:.1f}".removesuffix(".0")


class Operated(str):
    """Attributes that scripts read; a drawing that nobody operates leaves them out."""


@dataclass
class Drawing:
    """An SVG under construction: its elements in drawing order.

    `look` is one or more words: the classes of a shape without `pb-`. One of them names what the
    shape stands for, such as `compute` or `series-a`, and with it the colour. `say` tells what a
    mark stands for; figures.js shows it under the pointer and the keyboard.
    """

    width: float
    height: float = 0
    parts: list[str] = field(default_factory=list)

    def add(
        self, kind: str, look: str, within: str = "", say: str = "", **attributes: float | str
    ) -> None:
        """Append an SVG element to `parts`: classes from `look`, attributes, and escaped text.

        Attributes have `_` for `-`, and empty ones are left out.
        """
        named = {"class": " ".join(f"pb-{word}" for word in look.split())} | attributes
        written = "".join(
            f' {name.replace("_", "-")}="{escape(to) if isinstance(to, str) else number(to)}"'
            for name, to in named.items()
            if to != ""
        )
        end = f">{escape(within, quote=False)}</{kind}>" if within else "/>"
        begin, words = f"<{kind}{written}", Operated(f' data-say="{escape(say)}"')
        self.parts += [begin, words, end] if say else [begin + end]

    def box(
        self, x: float, y: float, width: float, height: float, look: str, *,
        radius: float = 0, say: str = "",
    ) -> None:  # fmt: skip
        """Add a rectangle, each of its sides at a tenth of a pixel, so that neighbours touch."""
        right, lower = round(x + width, 1), round(y + height, 1)
        x, y = round(x, 1), round(y, 1)
        width, height = right - x, lower - y
        self.add("rect", look, x=x, y=y, width=width, height=height, rx=radius or "", say=say)

    def line(self, x1: float, y1: float, x2: float, y2: float, look: str) -> None:
        """Add a straight line."""
        self.add("line", look, x1=x1, y1=y1, x2=x2, y2=y2)

    def curve(self, points: Sequence[tuple[float, float]], look: str) -> None:
        """Add a line through points."""
        self.add("polyline", look, points=_places(points))

    def area(self, corners: Sequence[tuple[float, float]], look: str, say: str = "") -> None:
        """Add a filled polygon."""
        self.add("polygon", look, points=_places(corners), say=say)

    def point(
        self, x: float, y: float, look: str, shape: str = "circle", radius: float = 4, say: str = ""
    ) -> None:
        """Add a point: a circle, or one of `SHAPES`."""
        if shape == "circle":
            self.add("circle", look, cx=x, cy=y, r=radius, say=say)
        else:
            self.area([(x + radius * dx, y + radius * dy) for dx, dy in SHAPES[shape]], look, say)

    def arrow(
        self, x1: float, y1: float, x2: float, y2: float, *,
        both: bool = False, look: str = "communication",
    ) -> None:  # fmt: skip
        """Add a line with a head at its end, or at both ends."""
        drawn = f"M{_places([(x1, y1)])}L{_places([(x2, y2)])}{_arrow_head(x1, y1, x2, y2)}"
        self.add("path", look, d=drawn + (_arrow_head(x2, y2, x1, y1) if both else ""))

    def word(
        self, x: float, y: float, text: str, look: str = "", anchor: Anchor = "start",
        data: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Add a line of text, if there is any, whose middle is at `y`."""
        side = anchor if anchor != "start" else ""
        if text:
            self.add("text", look, text, x=x, y=y, text_anchor=side, **(data or {}))

    @contextmanager
    def during(self, start: float, end: float) -> Iterator[None]:
        """Draw in a group that shows between two moments of a play; 1 is the last."""
        past = ' class="pb-past"' if end <= 1 else ""
        self.parts += [f"<g{past}", Operated(f' data-during="{start:g} {end:g}"'), ">"]
        yield
        self.parts.append("</g>")

    def playhead(self, first: int, start: float, end: float, top: float, bottom: float) -> None:
        """Add the line that moves from one place to another.

        The parts from `first` on become outlines of what is to come. A copy of them lies above,
        and player.js shows as much of it as has been played.
        """
        drawn = self.parts[first:]
        outlines = ['<g class="pb-to-come">', *drawn, "</g>"]
        filled = [part for part in drawn if not isinstance(part, Operated)]
        place = (*map(number, (start, top, end - start, bottom - top)),)
        x, y, width, height = place
        self.parts[first:] = [
            *map(Operated, outlines),
            f'<svg x="{x}" y="{y}" width="{width}" height="{height}" viewBox="{" ".join(place)}" '
            'aria-hidden="true">', *filled, "</svg>",
            f'<path class="pb-past" data-now="{x} {number(end)}" d="M0 {y}v{height}"/>',
        ]  # fmt: skip

    def svg(
        self, name: str, title: str, description: str, css_class: str, *, is_operated: bool = True
    ) -> Markup:
        """The drawing as an inline `<svg>`, sized in rem, with a class, title and description."""
        parts = (part for part in self.parts if is_operated or not isinstance(part, Operated))
        width, height = number(self.width), number(self.height)
        return Markup(
            f'<svg class="pb-drawing {css_class}" viewBox="0 0 {width} {height}" '
            f'width="{self.width / REM:g}rem" height="{self.height / REM:g}rem" role="img" '
            f'aria-labelledby="{name}-title {name}-desc">'
            f'<title id="{name}-title">{escape(title)}</title>'
            f'<desc id="{name}-desc">{escape(description)}</desc>{"".join(parts)}</svg>'
        )


def _places(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{number(x)},{number(y)}" for x, y in points)


def _arrow_head(x1: float, y1: float, x2: float, y2: float) -> str:
    back = math.atan2(y1 - y2, x1 - x2)
    left, right = (
        (x2 + 7 * math.cos(back + turn), y2 + 7 * math.sin(back + turn)) for turn in (-0.5, 0.5)
    )
    return "M{} L{} L{}".format(*_places([left, (x2, y2), right]).split())
