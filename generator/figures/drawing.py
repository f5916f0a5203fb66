"""Drawings: shapes and words at places in pixels → one inline `<svg>`.

Flow: a function of `drawings/` adds boxes, lines, points and words to a `Drawing`, with the scales
and axes of `axes.py` where it needs them; `svg` writes them in that order. A drawing holds neither
colours nor fonts: each shape has classes, and `drawings.css` says what they look like.

Text is taken to be as wide as in the widest font that a reader may have: for each letter, the wider
of Liberation Sans (Arial and Helvetica have its widths) and DejaVu Sans, the only one on many
machines. Words then end where a drawing expects it or earlier, and no byte depends on fonts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from html import escape
from typing import Literal

from markupsafe import Markup

SIZE = 13  # of all text, in pixels; `drawings.css` says it once for every drawing
REM = 20  # pixels, in which a drawing is shown as large as it is drawn
LINE = 20  # from one line of text to the next
BOLD = 1.13  # a line in bold letters is at most this much wider
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
class Layout:
    """How much room a drawing has; `wide` for a column of text, `narrow` for a phone."""

    name: Literal["wide", "narrow"]
    width: int
    labels_above: bool  # row labels over the marks instead of beside them


WIDE = Layout("wide", 720, labels_above=False)
NARROW = Layout("narrow", 358, labels_above=True)


def text_width(text: str, *, bold: bool = False) -> float:
    """The width of a line of text, in pixels."""
    width = sum(_WIDTH_OF.get(letter, OTHER) for letter in text) * SIZE / 1000
    return width * BOLD if bold else width


def fitting(text: str, width: float) -> str:
    """The text, cut to what fits into a width; nothing where less than three letters would."""
    if text_width(text) <= width:
        return text
    kept = next((n for n in range(len(text), 2, -1) if text_width(f"{text[:n]}…") <= width), 0)
    return f"{text[:kept].rstrip()}…" if kept else ""


def wrapped(text: str, width: float) -> list[str]:
    """The text in lines that fit into a width; a word that is wider stays whole."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


@lru_cache(maxsize=65536)
def number(value: float) -> str:
    """A place in pixels, to a tenth: what lies nearer than that looks the same."""
    return f"{round(value, 1) + 0:.1f}".removesuffix(".0")


@dataclass
class Drawing:
    """What is drawn, in the order in which it is drawn.

    `look` is one or more words: the classes of a shape without `pb-`. One of them names what the
    shape stands for, such as `compute` or `series-a`, and with it the colour. `say` tells what a
    mark stands for; figures.js shows it under the pointer and the keyboard.
    """

    width: float
    height: float = 0
    parts: list[str] = field(default_factory=list)

    def box(
        self, x: float, y: float, width: float, height: float, look: str, *,
        radius: float = 0, say: str = "",
    ) -> None:  # fmt: skip
        """Add a rectangle. Its sides are rounded one by one, so that neighbours touch."""
        right, lower = round(x + width, 1), round(y + height, 1)
        x, y = round(x, 1), round(y, 1)
        corners = {"rx": radius} if radius else {}
        self._add("rect", look, say, x=x, y=y, width=right - x, height=lower - y, **corners)

    def line(self, x1: float, y1: float, x2: float, y2: float, look: str, say: str = "") -> None:
        """Add a straight line."""
        self._add("line", look, say, x1=x1, y1=y1, x2=x2, y2=y2)

    def curve(self, points: Sequence[tuple[float, float]], look: str) -> None:
        """Add a line through points."""
        self.parts.append(f"<polyline{_classes(look)} {_places(points)}/>")

    def area(self, corners: Sequence[tuple[float, float]], look: str) -> None:
        """Add a filled polygon."""
        self.parts.append(f"<polygon{_classes(look)} {_places(corners)}/>")

    def point(
        self, x: float, y: float, look: str, shape: str = "circle", radius: float = 4, say: str = ""
    ) -> None:
        """Add a point: a circle, or one of `SHAPES`."""
        if shape == "circle":
            self._add("circle", look, say, cx=x, cy=y, r=radius)
        else:
            corners = [(x + radius * dx, y + radius * dy) for dx, dy in SHAPES[shape]]
            self.parts.append(f"<polygon{_classes(look)} {_places(corners)}{_told(say)}/>")

    def arrow(
        self, x1: float, y1: float, x2: float, y2: float, look: str = "communication", *,
        both: bool = False,
    ) -> None:  # fmt: skip
        """Add a line with a head at its end, or at both ends."""
        drawn = f"M{_place(x1, y1)}L{_place(x2, y2)}{_head(x1, y1, x2, y2)}"
        drawn += _head(x2, y2, x1, y1) if both else ""
        self.parts.append(f'<path{_classes(look)} d="{drawn}"/>')

    def word(self, x: float, y: float, text: str, look: str = "", anchor: Anchor = "start") -> None:
        """Add a line of text whose middle is at `y`."""
        side = f' text-anchor="{anchor}"' if anchor != "start" else ""
        place = f' x="{number(x)}" y="{number(y)}"'
        self.parts.append(f"<text{_classes(look)}{place}{side}>{escape(text, quote=False)}</text>")

    def middles(self, places: Sequence[tuple[float, float, str]], look: str) -> None:
        """Add words of one look, each in the middle of its place."""
        words = (f'<text x="{number(x)}" y="{number(y)}">{said}</text>' for x, y, said in places)
        self.parts.append(f'<g{_classes(look)} text-anchor="middle">{"".join(words)}</g>')

    @contextmanager
    def during(self, start: float, end: float) -> Iterator[None]:
        """What is drawn inside is seen from one moment of a play to another; 1 is its last."""
        past = ' class="pb-past"' if end <= 1 else ""
        self.parts.append(f'<g{past} data-during="{start:g} {end:g}">')
        yield
        self.parts.append("</g>")

    def playhead(self, start: float, end: float, top: float, bottom: float) -> None:
        """Add the line that moves from one place to another, and a veil over what is to come."""
        height = number(bottom - top)
        self.parts.append(
            f'<g class="pb-past" data-now="{number(start)} {number(end)}">'
            f'<rect class="pb-veil" y="{number(top)}" width="{number(end - start)}" '
            f'height="{height}"/><path d="M0 {number(top)}v{height}"/></g>'
        )

    def _add(self, kind: str, look: str, say: str, **places: float) -> None:
        numbers = "".join(f' {name}="{number(value)}"' for name, value in places.items())
        self.parts.append(f"<{kind}{_classes(look)}{numbers}{_told(say)}/>")

    def svg(self, name: str, title: str, description: str, css_class: str) -> Markup:
        """The drawing as one inline `<svg>` with a title and a description.

        Args:
            name: an id, unique on the page.
            title: what it shows, in a few words.
            description: the same in a sentence or two, for those who cannot see it.
            css_class: a class of the `<svg>` beside `pb-drawing`.
        """
        width, height = number(self.width), number(self.height)
        return Markup(
            f'<svg class="pb-drawing {css_class}" viewBox="0 0 {width} {height}" '
            f'width="{self.width / REM:g}rem" height="{self.height / REM:g}rem" role="img" '
            f'aria-labelledby="{name}-title {name}-desc">'
            f'<title id="{name}-title">{escape(title)}</title>'
            f'<desc id="{name}-desc">{escape(description)}</desc>{"".join(self.parts)}</svg>'
        )


def _classes(look: str) -> str:
    return f' class="{" ".join(f"pb-{one}" for one in look.split())}"' if look else ""


def _told(say: str) -> str:
    return f' data-say="{escape(say)}"' if say else ""


def _places(points: Sequence[tuple[float, float]]) -> str:
    return 'points="{}"'.format(" ".join(f"{number(x)},{number(y)}" for x, y in points))


def _place(x: float, y: float) -> str:
    return f"{number(x)} {number(y)}"


def _head(x1: float, y1: float, x2: float, y2: float) -> str:
    """The open head of an arrow from one place to another."""
    back = math.atan2(y1 - y2, x1 - x2)
    wings = [
        (x2 + 7 * math.cos(back + turn), y2 + 7 * math.sin(back + turn)) for turn in (-0.5, 0.5)
    ]
    return f"M{_place(*wings[0])}L{_place(x2, y2)}L{_place(*wings[1])}"
