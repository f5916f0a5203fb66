"""Runs as lines and points: the loss of each step, and where runs lie in a plane."""

from collections.abc import Iterator, Sequence

from generator.content.exhibit import Figure
from generator.figures.axes import Scale
from generator.figures.drawings.plot import MARKS, Axis, Series, axis_of, dashed, plot
from generator.figures.picture import Seen, both, plainly
from generator.figures.play.states import State
from generator.printing.folio import Folio
from generator.values import units
from generator.values.value import numeric

HEIGHT = 170  # of losses
HEIGHT_OF_REGIONS = 260


def loss(states: Sequence[State], _: Figure, folio: Folio) -> list[Seen]:
    """The loss of each step, a line a run, all on the same axes."""
    lines = [list(_lines(state, folio)) for state in states]
    points = [point for series in lines for one in series for point in one.points]
    if not points:
        return []
    last = max(x for x, _, _ in points)
    x = Axis("step", Scale(1, last, 0, 1).ticks(6), ends=(1, last))
    y = axis_of("", [y for _, y, _ in points], 4)
    return [
        Seen(
            both(plot, series, x, y, HEIGHT),
            "; ".join(f"{one.name}: {one.points[-1][2]}" for one in series),
        )
        for series in lines
    ]


def _lines(state: State, folio: Folio) -> Iterator[Series]:
    """The losses of each run, of which about a dozen can be read off."""
    for position, one in enumerate(state.runs):
        name = one.label or folio.strategy(one.run)
        known = [(n, loss) for n, loss in enumerate(one.run.step_losses, 1) if loss is not None]
        every, points = 1 + len(known) // 16, []
        for n, loss in known:
            said = f"{name}, step {n}: {units.printed(loss, units.LOSS, units.AS_RULED)}"
            points.append((float(n), loss, "" if n % every and n < len(known) else said))
        yield dashed(name, points, position)


def regions(states: Sequence[State], figure: Figure, folio: Folio) -> list[Seen]:
    """All runs in a plane that a law divides, and devices; the runs of a state stand out."""
    assert figure.play is not None
    assert figure.play.regions is not None
    written = figure.play.regions
    titles = [plainly(text, folio) for text in (written.x_label, written.y_label)]
    sides = (plainly(written.above, folio), plainly(written.below, folio))
    series = []
    for mark, look in zip(written.marks, MARKS[1:], strict=False):
        found, name = folio.value(mark.x), plainly(mark.label, folio)
        if found is not None:
            place = numeric(found)
            series.append(Series(name, [(place, place, name)], mark=look, radius=5))
    places = {}
    for run in (run for state in states for run in state.runs):
        x, y = (folio.evidence.one(what, run.path) for what in (written.x, written.y))
        if x is not None and y is not None:
            side = sides[numeric(y) < numeric(x)]
            places[run.path] = (numeric(x), numeric(y), f"{run.path}: {y}, {x}: {side}")
    every = [*places.values(), *(point for one in series for point in one.points)]
    ends = [value for x, y, _ in every for value in (x, y)]
    across, up = (axis_of(title, ends, 5, is_logarithmic=True) for title in titles)
    name, seen = plainly(written.runs, folio), []
    for state in states:
        drawn = [places[one.path] for one in state.runs if one.path in places]
        others = [place for place in places.values() if place not in drawn]
        runs = [Series(name, others, mark=MARKS[0]), Series("", drawn, mark=MARKS[0], radius=7)]
        drawings = both(plot, [*series, *runs], across, up, HEIGHT_OF_REGIONS, sides=sides)
        cells = tuple(
            {titles[0]: folio.printed(folio.evidence.one(written.x, one.path))}
            for one in state.runs
        )
        seen.append(Seen(drawings, "; ".join(say for _, _, say in drawn), cells))
    return seen
