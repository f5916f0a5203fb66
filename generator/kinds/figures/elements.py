"""Figures as a page shows them: drawn once, or operated by readers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

from proofbook.generator.kinds.figures.figures import FigureOnPage
from proofbook.generator.kinds.figures.picture import Play
from proofbook.generator.pages.elements.element import Apart, Element
from proofbook.generator.pages.elements.tables import Table, with_units
from proofbook.generator.printing.folio import breakable


@dataclass(frozen=True)
class DrawnFigure(Element):
    """A figure with its drawings; of one that readers operate the first state."""

    of: FigureOnPage
    numbers: Table | None = None  # behind it

    @property
    def needs(self) -> frozenset[str]:
        """Also the style of states, if it is drawn of a play."""
        return super().needs | ({"state"} if self.of.picture.play else set())

    def parts(self) -> Iterator[Element | Markup]:
        """Its title, its caption and the numbers behind it."""
        yield from (self.of.title, self.of.caption)
        if self.numbers:
            yield Apart([self.numbers])


@dataclass(frozen=True, kw_only=True)
class PlayedFigure(DrawnFigure):
    """A figure that readers operate: without a script its first state, and a table of all."""

    play: Play

    @property
    def entry(self) -> tuple[str, Markup]:
        """Its title names quantities, and is found."""
        return f"figure-{self.of.id}", self.of.title

    @property
    def needs(self) -> frozenset[str]:
        """Also the script of a player, if it is played."""
        return super().needs | ({"moments"} if self.play.moments else set())

    def parts(self) -> Iterator[Element | Markup]:
        """Its title and its caption."""
        yield from (self.of.title, self.play.task, self.of.caption)
        for control in self.play.controls:
            yield from map(escape, (control.label, *control.options))


def figure(drawn: FigureOnPage) -> DrawnFigure:
    """A figure as an element: operated if it is a play."""
    play = drawn.picture.play
    if play is None:
        return drawn_once(drawn)
    heads = [escape("#") + breakable(name) for name in play.head]
    titles, cells = with_units(heads, [row.cells for row in play.rows])
    rows = [row._replace(cells=own) for row, own in zip(play.rows, cells, strict=True)]
    head = [Markup(title[1:]) for title in titles]
    return PlayedFigure(drawn, play=replace(play, head=head, rows=rows))


def drawn_once(drawn: FigureOnPage, *, with_numbers: bool = True) -> DrawnFigure:
    """A figure as an element that nobody operates."""
    head, rows = drawn.picture.head, drawn.picture.rows
    heads = [*head[:1], *(f"#{name}" for name in head[1:])]
    numbers = Table(heads, rows, head_css="pb-label") if with_numbers else None
    return DrawnFigure(drawn, numbers)
