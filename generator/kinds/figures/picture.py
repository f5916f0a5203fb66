"""What a figure is made of once its runs are read: drawings, their words, and tables of numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from markupsafe import Markup

from proofbook.generator.kinds.figures.drawing import NARROW, WIDE, Drawing, PageWidth
from proofbook.generator.kinds.figures.play.states import Control, PlayState
from proofbook.generator.printing.folio import Folio
from proofbook.generator.printing.markdown import plain
from proofbook.generator.values import units

# A part of the play, from 0 to 1, and what goes on from then on; below it, in words, what is drawn.
Moment = tuple[float, str]


NumberRow = Sequence[Markup | str]  # its name, and numbers


class StateRow(NamedTuple):
    """A run of a state, in the table of all."""

    state: int  # its place
    words: list[str]  # what tells it apart
    run: Markup
    nature: str  # unless it is real
    href: str
    cells: list[Markup]


class Budget(NamedTuple):
    """A line over bars, which readers move in the unit of the axis."""

    start: float
    low: float
    top: float
    step: float
    unit: str
    printed: Markup  # where it starts


@dataclass(frozen=True)
class Play:
    """What readers operate: a figure's controls, the first state drawn, and a table of all."""

    task: Markup
    script: str  # the address of all states' drawings
    controls: Sequence[Control]
    first: PlayState
    drawn: Markup
    moments: Sequence[str]  # of the first state, in words
    budget: Budget | None
    words: Sequence[str]  # heads of what tells rows apart
    head: Sequence[str]  # of their numbers
    rows: Sequence[StateRow]
    is_drawn: bool  # whether bars show all these numbers


@dataclass(frozen=True)
class Picture:
    """The drawings of a figure, and the table of the numbers behind them.

    A figure that readers operate has all that it shows in `play`, which `play/frame.py` makes.
    """

    head: Sequence[str] = ()
    rows: Sequence[NumberRow] = ()
    drawings: Markup | None = None
    play: Play | None = None

    @property
    def still(self) -> Markup:
        """The drawings that nobody operates: of a play, those of its first state."""
        return self.play.drawn if self.play else self.drawings or Markup()


@dataclass(frozen=True)
class DrawnState:
    """One state of runs: how it is drawn on a page of any width, and the same in words."""

    draw: Callable[[PageWidth], Drawing]
    says: str
    cells: Mapping[str, Mapping[str, Markup]] = field(default_factory=dict)  # drawn, by run
    title: str = ""  # the key of the words above it, where these are not those of the view
    moments: tuple[Moment, ...] = ()  # when something begins or ends, if the state is played
    budget: Budget | None = None

    def svg(self, name: str, title: str, *, is_operated: bool = True) -> Markup:
        """The SVG of each layout, with the words as description; the narrow one if not operated."""
        return Markup("").join(
            self.draw(layout).svg(
                f"{name}-{layout.name}", title, self.says, f"pb-{layout.name}",
                is_operated=is_operated,
            )
            for layout in ((WIDE, NARROW) if is_operated else (NARROW,))
        )  # fmt: skip


def plain_line(text: str, folio: Folio) -> str:
    """An author's line as plain text, for a drawing."""
    return plain(folio.line(text))


def byte_unit(largest: float) -> tuple[str, float]:
    """Unit of an axis of bytes, and its size in bytes, chosen by the largest value."""
    return units.of_axis(units.BYTES, largest, 2)


def printed_bytes(number: float) -> str:
    """Bytes as every page prints them."""
    return units.printed(number, units.BYTES, units.AS_RULED)
