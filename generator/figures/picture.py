"""What a figure is made of once its runs are read: drawings, and a table of the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

from markupsafe import Markup

from generator.content.exhibit import Figure
from generator.content.typesetting import plain
from generator.evidence.folio import Folio
from generator.figures.drawing import NARROW, WIDE, Drawing, Layout


@dataclass
class Table:
    """Numbers behind a figure: a head, and rows whose first cell names the row."""

    head: list[str]
    rows: list[list[Markup | str]] = field(default_factory=list)


@dataclass
class Picture:
    """Drawings for a wide and a narrow page, or panels that stand side by side.

    `details` is a second table, where a drawing shows more than its first can hold. A figure that
    readers operate has all that it shows in `play`, which `play/frame.py` makes.
    """

    table: Table
    drawings: list[Markup] = field(default_factory=list)
    details: Table | None = None
    panels: list[tuple[str, Markup]] = field(default_factory=list)
    play: SimpleNamespace | None = None


def figure_svg(
    drawing: Drawing, figure: Figure, folio: Folio, part: str, description: str
) -> Markup:
    """A drawing of a figure as inline SVG, titled by the figure."""
    title = plain(folio.line(figure.title))
    return drawing.svg(f"{figure.id}-{part}", title, description, f"pb-{part}")


def on_both(
    draw: Callable[[Layout], Drawing], figure: Figure, folio: Folio, description: str
) -> list[Markup]:
    """A figure as it stands in a column of text, and on a phone."""
    return [
        figure_svg(draw(layout), figure, folio, layout.name, description)
        for layout in (WIDE, NARROW)
    ]
