"""What a view makes of a state: a drawing for each layout, the same in words, cells of a table.

Of a state that is played it also tells the moments at which something begins or ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from generator.evidence import units
from generator.evidence.play_states import State
from generator.evidence.units import AS_RULED
from generator.figures.drawing import NARROW, WIDE, Drawing
from generator.figures.schedule_rule import Action

# A part of the play, from 0 to 1, and what goes on from then on; below it, in words, what is drawn.
Moment = tuple[float, str]


@dataclass(frozen=True)
class Seen:
    """A state as a view shows it; `cells` has, for each of its runs, the values in the drawing.

    `title` is the key of the words above it, where these are not those of the view. A state that is
    played has `moments`.
    """

    drawings: tuple[Drawing, Drawing]
    says: str
    cells: tuple[dict[str, Markup], ...] = field(default_factory=tuple)
    title: str = ""
    moments: tuple[Moment, ...] = ()

    def svg(self, name: str, title: str) -> Markup:
        """The drawing of each layout, which says the same in words."""
        return Markup("").join(
            drawing.svg(f"{name}-{layout.name}", title, self.says, f"pb-{layout.name}")
            for drawing, layout in zip(self.drawings, (WIDE, NARROW), strict=True)
        )


def in_lines(title: str, amounts: Mapping[str, Markup]) -> dict[str, Markup]:
    """Amounts in one cell, a line each: a column for each makes a table wider than its page.

    The lines are in one element, which stands beside its label where cells are stacked.
    """
    lines = [Markup("{} {}").format(name, amount) for name, amount in amounts.items()]
    cell = Markup("<span>{}</span>").format(Markup("<br>").join(lines))
    return {title: cell} if lines else {}


def both(draw: Callable[..., Drawing], *what: object, **more: object) -> tuple[Drawing, Drawing]:
    """A drawing for a wide page and one for a phone."""
    return draw(*what, layout=WIDE, **more), draw(*what, layout=NARROW, **more)


def on_one_device(states: Sequence[State]) -> bool:
    """Whether no run of any state has ranks that could differ."""
    runs = [one.run for state in states for one in state.runs]
    return all(run.world_size == 1 and run.nature == "real" for run in runs)


def byte_unit(largest: float) -> tuple[str, float]:
    """The unit of an axis of bytes, the largest of which its longest bar has two."""
    return units.of_axis(units.BYTES, largest, 2)


def said_bytes(number: float) -> str:
    """Bytes as every page prints them."""
    return units.printed(number, units.BYTES, AS_RULED)


def moments(
    rows: Mapping[str, Sequence[Action]], words: Mapping[str, str],
    more: Callable[[float], str] = lambda _: "",
) -> tuple[Moment, ...]:  # fmt: skip
    """The actions under way from each moment on.

    Args:
        rows: the actions of each, by its name.
        words: names of actions, and `done`, for a moment without any.
        more: what else there is to say of a time.
    """
    actions = [(row, one) for row, found in rows.items() for one in found]
    end = max(one.end for _, one in actions)
    told = []
    for time in sorted({round(at, 9) for _, one in actions for at in (one.start, one.end)}):
        now = [
            f"{row}: {words[one.kind]} {one.name}".rstrip()
            for row, one in actions
            if one.kind != "whole" and one.start - 1e-9 <= time < one.end - 1e-9
        ]
        said = "; ".join(filter(None, [*(now or [words["done"]]), more(time)]))
        told.append((round(time / end, 4), f"{said[:1].upper()}{said[1:]}."))
    return tuple(told)
