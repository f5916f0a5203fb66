"""Runs as lines and points: the loss of each step, and where runs lie in a plane."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace

from generator.content.exhibit import Figure, Regions
from generator.figures.axes import Scale
from generator.figures.drawing import Drawing
from generator.figures.drawings.plot import (
    MARKS,
    Axis,
    Point,
    Series,
    axis_of,
    crossed,
    dashed,
    plot,
)
from generator.figures.picture import DrawnState, both_widths, plain_line
from generator.figures.play.states import PlayState
from generator.printing.folio import Folio
from generator.values import units
from generator.values.value import numeric

HEIGHT = 170  # of losses
HEIGHT_OF_REGIONS, HEIGHT_OF_RUNS = 230, 130
AROUND = 5  # times the least and the largest threshold: how far a plane goes beyond them
SLIDES = 1000  # places of a slider


def loss(states: Sequence[PlayState], _: Figure, folio: Folio) -> list[DrawnState]:
    """A `DrawnState` per state: loss by step, a line for each run, all states on the same axes."""
    lines = [list(_lines(state, folio)) for state in states]
    points = [point for series in lines for curve in series for point in curve.points]
    if not points:
        return []
    last = max(x for x, _, _ in points)
    x = Axis("step", Scale(1, last, 0, 1).ticks(6), ends=(1, last))
    y = axis_of("", [y for _, y, _ in points], 4)
    return [
        DrawnState(
            both_widths(plot, series, x, y, HEIGHT),
            "; ".join(f"{curve.name}: {curve.points[-1][2]}" for curve in series),
        )
        for series in lines
    ]


def _lines(state: PlayState, folio: Folio) -> Iterator[Series]:
    """The losses of each run, of which about a dozen can be read off."""
    for position, labelled in enumerate(state.runs):
        name = labelled.label or folio.strategy(labelled.run)
        known = [
            (n, loss) for n, loss in enumerate(labelled.run.step_losses, 1) if loss is not None
        ]
        every, points = 1 + len(known) // 16, []
        for n, loss in known:
            words = f"{name}, step {n}: {units.printed(loss, units.LOSS, units.AS_RULED)}"
            points.append((float(n), loss, "" if n % every and n < len(known) else words))
        yield dashed(name, points, position)


def regions(states: Sequence[PlayState], figure: Figure, folio: Folio) -> list[DrawnState]:
    """A `DrawnState` per state: devices in a plane that y = x divides; below, all runs in another.

    Readers move the devices up and down; the runs of a state stand out.
    """
    assert figure.play is not None
    assert figure.play.regions is not None
    written = figure.play.regions
    titles = [plain_line(text, folio) for text in (written.x_label, written.y_label)]
    sides = (plain_line(written.above, folio), plain_line(written.below, folio))
    places = {}
    for run in (run for state in states for run in state.runs):
        x, y = (folio.evidence.value(what, run.path) for what in (written.x, written.y))
        if x is not None and y is not None:
            side = sides[numeric(y) < numeric(x)]
            places[run.path] = (numeric(x), numeric(y), f"{run.path}: {y}, {x}: {side}")
    if not places:
        return []
    ends = [value for x, y, _ in places.values() for value in (x, y)]
    across, up = (axis_of(title, ends, 5, is_logarithmic=True) for title in titles)
    devices, moved = _devices(written, titles, sides, folio)
    name, drawn_states = plain_line(written.runs, folio), []
    title = f"{name[:1].upper()}{name[1:]}, on a scale of their own"
    for state in states:
        drawn = [places[labelled.path] for labelled in state.runs if labelled.path in places]
        others = [place for place in places.values() if place not in drawn]
        runs = [Series("", others, mark=MARKS[0]), Series("", drawn, mark=MARKS[0], radius=7)]
        below = both_widths(plot, runs, across, up, HEIGHT_OF_RUNS, sides=sides, title=title)
        drawings = tuple(map(_joined, devices or (None, None), below))
        cells = tuple(
            {titles[0]: folio.printed(folio.evidence.value(written.x, labelled.path))}
            for labelled in state.runs
        )
        says = "; ".join(say for _, _, say in drawn)
        drawn_states.append(DrawnState((drawings[0], drawings[1]), says, cells, budget=moved))
    return drawn_states


def _joined(above: Drawing | None, below: Drawing) -> Drawing:
    """One drawing over the other; the upper one is used by all states, so it stays as it is."""
    return replace(above, parts=[*above.parts]).below(below) if above else below


def _devices(
    written: Regions, titles: Sequence[str], sides: tuple[str, str], folio: Folio
) -> tuple[tuple[Drawing, Drawing] | None, SimpleNamespace | None]:
    """The plane of the devices, in whose middle they start, and the slider that moves them."""
    devices = [(plain_line(mark.label, folio), folio.value(mark.x)) for mark in written.marks]
    points = [
        Point(name, float(numeric(at)), f"{name}: {titles[0]}: {at}") for name, at in devices if at
    ]
    if not points:
        return None, None
    thresholds = [point.x for point in points]
    ends = (min(thresholds) / AROUND, max(thresholds) * AROUND)
    x, y = (axis_of(title, ends, 5, is_logarithmic=True) for title in titles)
    low, high = y.ticks[0], y.ticks[-1]
    way = math.log(math.prod(thresholds) ** (1 / len(points)) / low) / math.log(high / low)
    place = round(SLIDES * way)
    start = float(f"{low * (high / low) ** (place / SLIDES):.2g}")  # as play.js rounds it
    drawings = both_widths(
        crossed, points, x, y, HEIGHT_OF_REGIONS, sides=sides, at=start,
        title="Devices at specified rates",
    )  # fmt: skip
    label = titles[1][:1].upper() + titles[1][1:]
    return drawings, SimpleNamespace(
        label=label, start=place, low=0, top=SLIDES, step=1, unit=titles[1], shown=None,
        powers=f"{low:g} {high:g}", said="{budget}: communication can hide on {n} of {m} nodes",
    )  # fmt: skip
