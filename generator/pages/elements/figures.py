"""Figures as a page shows them: drawn once, or operated by readers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

from markupsafe import Markup, escape

from generator.figures.figures import FigureOnPage
from generator.pages.elements.element import Apart, Element
from generator.pages.elements.tables import Table, with_units
from generator.printing.folio import Folio, breakable


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


@dataclass(frozen=True)
class PlayedFigure(DrawnFigure):
    """A figure that readers operate: without a script its first state, and a table of all."""

    root: str = ""  # what leads to the site's root
    head: Sequence[Markup] = ()  # of the table's numbers, with their units
    cells: Sequence[Sequence[Markup]] = ()  # of each of the play's rows, under this head

    @property
    def play(self) -> SimpleNamespace:
        """What readers operate."""
        assert self.of.picture.play
        return self.of.picture.play

    @property
    def needs(self) -> frozenset[str]:
        """Also the script of a player, if it is played."""
        return super().needs | ({"moments"} if self.play.moments else set())

    def parts(self) -> Iterator[Element | Markup]:
        """Its title, its task, its caption and its controls."""
        yield from (self.of.title, self.play.task, self.of.caption)
        for control in self.play.controls:
            yield from map(escape, (control.label, *control.options))


def figure(drawn: FigureOnPage, folio: Folio) -> DrawnFigure:
    """A figure as an element: operated if it is a play."""
    play = drawn.picture.play
    if play is None:
        return drawn_once(drawn)
    heads = [escape("#") + breakable(name) for name in play.head]
    titles, cells = with_units(heads, [row.cells for row in play.rows])
    return PlayedFigure(drawn, None, folio.root, [Markup(title[1:]) for title in titles], cells)


def drawn_once(drawn: FigureOnPage, *, with_numbers: bool = True) -> DrawnFigure:
    """A figure as an element that nobody operates."""
    table = drawn.picture.table
    heads = [*table.head[:1], *(f"#{name}" for name in table.head[1:])]
    numbers = Table(heads, table.rows, head_css="pb-label") if with_numbers else None
    return DrawnFigure(drawn, numbers)
