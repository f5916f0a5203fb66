"""Diagrams: boxes, words and arrows at places we compute, written as SVG by a template."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from jinja2 import Environment
from markupsafe import Markup

LETTER = 6.7  # mean width of a letter at 13 px, in px


@dataclass(frozen=True)
class Box:
    """A rectangle; `fill` and `stroke` are CSS variables without `--pb-`, or none."""

    x: float
    y: float
    width: float
    height: float
    fill: str = "none"
    stroke: str = "none"
    dashed: bool = False
    radius: float = 0


@dataclass(frozen=True)
class Word:
    """A line of text; `colour` as in Box, or `ink`."""

    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "start"
    colour: str = "ink"
    bold: bool = False
    size: int = 13


@dataclass(frozen=True)
class Arrow:
    """A line with a head at its end, or at both ends."""

    x1: float
    y1: float
    x2: float
    y2: float
    colour: str = "communication"
    both: bool = False


@dataclass(frozen=True)
class Line:
    """A line without heads, as thick as an arrow's."""

    x1: float
    y1: float
    x2: float
    y2: float
    colour: str = "communication"


@dataclass
class Diagram:
    """What is drawn, in the order in which it is drawn."""

    width: int
    height: float = 0
    parts: list[Box | Word | Arrow | Line] = field(default_factory=list)

    def box(self, x: float, y: float, width: float, height: float, **more: str | float) -> None:
        """Add a rectangle."""
        self.parts.append(Box(x, y, width, height, **more))  # type: ignore[arg-type]

    def word(self, x: float, y: float, text: str, **more: str | int) -> None:
        """Add a line of text whose middle is at `y`."""
        self.parts.append(Word(x, y, text, **more))  # type: ignore[arg-type]

    def arrow(self, x1: float, y1: float, x2: float, y2: float, **more: str | bool) -> None:
        """Add an arrow."""
        self.parts.append(Arrow(x1, y1, x2, y2, **more))  # type: ignore[arg-type]

    def line(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """Add a line without heads."""
        self.parts.append(Line(x1, y1, x2, y2))


def fitting(text: str, width: float, size: int = 13) -> str:
    """The text, cut to what fits into a width; nothing where less than three letters would."""
    room = int(width / (LETTER * size / 13))
    if len(text) <= room:
        return text
    return f"{text[: room - 1]}…" if room >= 4 else ""


def wrapped(text: str, width: float, size: int = 13) -> list[str]:
    """The text in lines that fit into a width."""
    room = max(int(width / (LETTER * size / 13)), 8)
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > room:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def svg(
    diagram: Diagram,
    environment: Environment,
    name: str,
    title: str,
    description: str,
    css_class: str,
) -> Markup:
    """The diagram as inline SVG with a title and a description.

    Args:
        diagram: what to draw.
        environment: the templates.
        name: an id, unique on the page.
        title: what it shows, in a few words.
        description: the same in a sentence or two, for those who cannot see it.
        css_class: class of the `<svg>`.
    """
    shapes = [(type(part).__name__.lower(), part) for part in diagram.parts]
    drawn = environment.get_template("diagrams/diagram.svg.j2").render(
        diagram=diagram,
        shapes=shapes,
        has_arrows=any(kind == "arrow" for kind, _ in shapes),
        name=name,
        title=title,
        description=description,
        css_class=css_class,
    )
    return Markup("".join(line.strip() for line in drawn.splitlines()))
