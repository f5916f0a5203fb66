"""What a figure is made of once its runs are read: drawings, and a table of the same numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from jinja2 import Environment
from markupsafe import Markup, escape

from generator.content.exhibit import Figure
from generator.evidence.folio import Folio
from generator.figures import chart
from generator.figures.chart import Layout, Spec
from generator.figures.drawings import diagram as diagrams
from generator.figures.drawings.diagram import Diagram

_TARGET = re.compile(r'popovertarget="([^"]+)"')


@dataclass
class Table:
    """Numbers behind a figure: a head, and rows whose first cell names the row."""

    head: list[str]
    rows: list[list[Markup | str]] = field(default_factory=list)


@dataclass
class Picture:
    """Drawings for a wide and a narrow page, or panels that stand side by side.

    `details` is a second table, where a drawing shows more than its first can hold.
    """

    table: Table
    drawings: list[Markup] = field(default_factory=list)
    panels: list[tuple[str, Markup]] = field(default_factory=list)
    details: Table | None = None


def plain(markup: Markup | str) -> str:
    """The text of a line that holds HTML, for a title inside an SVG."""
    return Markup(re.sub(r"<[^>]+>", "", str(markup))).unescape()


def chart_svg(spec: Spec, figure: Figure, folio: Folio, part: str, description: str) -> Markup:
    """A chart as inline SVG, titled by its figure."""
    title = plain(folio.line(figure.title))
    return Markup(chart.svg(spec, f"{figure.id}-{part}", title, description, f"pb-{part}"))


def opening(svg: Markup, sources: Mapping[str, str]) -> Markup:
    """A chart whose marks open where their values come from; figures.js does so on a click.

    Args:
        svg: the chart.
        sources: for what a mark says, the same value as a button that opens its popover.
    """
    drawn = str(svg)
    for say, button in sources.items():
        target = _TARGET.search(button)
        if target:
            said = f'data-say="{escape(say)}"'
            drawn = drawn.replace(said, f'{said} data-opens="{target[1]}"')
    return Markup(drawn)


def diagram_svg(
    diagram: Diagram,
    figure: Figure,
    environment: Environment,
    layout: Layout,
    title: str,
    description: str,
) -> Markup:
    """A diagram as inline SVG, titled by its figure."""
    return diagrams.svg(
        diagram,
        environment,
        f"{figure.id}-{layout.name}",
        title,
        description,
        f"pb-{layout.name}",
    )
