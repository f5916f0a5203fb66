"""Figures: an author's `Figure` and the runs it names → drawings, and the numbers behind them.

Each kind has a reader beside this file, which turns runs into rows of words and numbers, and a
drawing in `drawings/`, which knows nothing of runs. Whatever is drawn also stands in a table, each
number with its provenance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from markupsafe import Markup

from generator.content.exhibit import Figure
from generator.evidence.folio import Folio
from generator.evidence.provenance import REFERENCE
from generator.evidence.regime import CROWDED, is_crowded
from generator.figures.epochs_figure import epochs
from generator.figures.growth_figure import growth
from generator.figures.picture import Picture
from generator.figures.placement_figure import placement
from generator.figures.play.frame import play
from runners.traces.records import Run

KINDS: dict[str, Callable[[Figure, Folio], Picture]] = {
    "epochs": epochs,
    "placement": placement,
    "growth": growth,
    "play": play,
}


@dataclass(frozen=True)
class FigureOnPage:
    """A figure as its template wants it; its caption ends with the natures of its runs, if any."""

    id: str
    title: Markup
    caption: Markup
    natures: str
    picture: Picture
    missing: list[str] = field(default_factory=list)


def draw(figure: Figure, folio: Folio) -> FigureOnPage:
    """Draw a figure from the runs it names; a run that was skipped is left out and said."""
    folio = folio.for_runs(_named(figure))
    folio.figures.append(figure.id)
    again = folio.figures.count(figure.id)
    if again > 1:  # a figure may stand on a page more than once, an id may not
        figure = figure.model_copy(update={"id": f"{figure.id}-{again}"})
    missing = []
    for path in _named(figure):
        run = folio.run(path)
        if run is None or run.status == "skipped":
            reason = run.why_skipped if run is not None else folio.ui["figure"]["skipped"]
            missing.append(f"{path}: {reason}")
    natures = _natures(figure, folio)
    if {run.nature for run in _runs(figure, folio)} == {natures}:
        folio = folio.said_once(natures)
    return FigureOnPage(
        id=figure.id,
        title=folio.line(figure.title),
        caption=folio.line(figure.caption),
        natures=natures,
        picture=KINDS[figure.kind](figure, folio),
        missing=missing,
    )


def _natures(figure: Figure, folio: Folio) -> str:
    """What no word beside a bar or a point could say: that a run drawn here is no ordinary one."""
    runs = _runs(figure, folio)
    found: list[str] = sorted({run.nature for run in runs} - {"real", folio.text.unmarked})
    if _draws_times(figure) and any(map(is_crowded, runs)):
        found.append(CROWDED)
    if folio.text.marks_reference and folio.is_lent(_named(figure)):
        found.append(REFERENCE)
    return ", ".join(found)


def _runs(figure: Figure, folio: Folio) -> list[Run]:
    return list(filter(None, map(folio.book.run, _named(figure))))


def _draws_times(figure: Figure) -> bool:
    """Whether a figure draws times whose labels do not say how many ranks shared a core."""
    return figure.growth is not None and "timing." in (figure.growth.measured or "")


def _named(figure: Figure) -> list[str]:
    """Every run that a figure names, each once."""
    of_growth = (
        [run for series in figure.growth.series for run in series.runs] if figure.growth else []
    )
    reference = [figure.play.reference] if figure.play and figure.play.reference else []
    return list(dict.fromkeys([*figure.runs, *of_growth, *reference]))
