"""Figures: an author's `Figure` and the runs it names → drawings, and the numbers behind them.

The kinds have their readers beside this file, which turn runs into rows of words and numbers, and a
drawing in `drawings/`, which knows nothing of runs. Whatever is drawn also stands in a table, each
number with its provenance.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from proofbook.generator.content.exhibit import Figure
from proofbook.generator.kinds.figures.charts import epochs, growth
from proofbook.generator.kinds.figures.picture import Picture
from proofbook.generator.kinds.figures.placement_figure import placement
from proofbook.generator.kinds.figures.play import states as play_states
from proofbook.generator.kinds.figures.play.frame import play
from proofbook.generator.printing.folio import REFERENCE, Folio
from proofbook.generator.values.regime import CROWDED, SPELLED, is_crowded
from proofbook.runners.core.trace.records import Run

KINDS: dict[str, Callable[[Figure, Folio], Picture]] = {
    "epochs": epochs,
    "placement": placement,
    "growth": growth,
    "play": play,
}


class FigureOnPage(NamedTuple):
    """A figure as its template wants it; its caption ends with the natures of its runs, if any."""

    id: str
    title: Markup
    caption: Markup
    natures: str
    picture: Picture
    missing: list[str]


def draw(figure: Figure, folio: Folio) -> FigureOnPage:
    """`FigureOnPage`: a figure drawn by its kind, caption, natures; `missing` runs, and why."""
    named = _run_paths(figure)
    folio = folio.for_runs(named)
    folio.figures.append(figure.id)
    again = folio.figures.count(figure.id)
    if again > 1:  # a figure may stand on a page more than once, an id may not
        figure = figure.model_copy(update={"id": f"{figure.id}-{again}"})
    by_path = {path: folio.run(path) for path in named}
    missing = [
        f"{path}: {run.why_skipped if run else 'skipped'}"
        for path, run in by_path.items()
        if run is None or run.status == "skipped"
    ]
    runs = list(filter(None, by_path.values()))
    natures = _natures(figure, runs, folio)
    folio.natures.add(natures)
    nature = natures.partition(", ")[0]
    is_alike = {run.nature for run in runs} == {nature}
    folio = folio.without_mark(nature if is_alike else "", REFERENCE not in natures)
    title, caption = folio.line(figure.title), folio.line(figure.caption)
    picture = KINDS[figure.kind](figure, folio)
    return FigureOnPage(figure.id, title, caption, natures, picture, missing)


def exhibit(figure: Figure, question: str, folio: Folio) -> FigureOnPage:
    """`FigureOnPage` of a question, which nobody operates: of a play the first state alone."""
    alone = play_states.first_alone(figure, folio).model_copy(update={"id": f"of-{question}"})
    return draw(alone, folio.in_link)._replace(caption=Markup())  # which might answer it


def _natures(figure: Figure, runs: Sequence[Run], folio: Folio) -> str:
    """The natures of a figure's runs that no label in it states, joined by commas."""
    natures: list[str] = sorted({run.nature for run in runs} - {"real", folio.unmarked})
    draws_times = figure.growth is not None and "timing." in (figure.growth.measured or "")
    crowded = {run.world_size for run in runs if draws_times and is_crowded(run)}
    if crowded:  # whose labels do not say it
        named = " and ".join(SPELLED.get(num, str(num)) for num in sorted(crowded))
        natures.append(CROWDED if all(map(is_crowded, runs)) else f"{CROWDED} ({named} ranks)")
    machines = map(folio.book.machine_of, filter(folio.book.run, _run_paths(figure)))
    if folio.marks_reference and folio.book.reference.name in machines:
        natures.append(REFERENCE)
    return ", ".join(natures)


def _run_paths(figure: Figure) -> list[str]:
    """Paths of all runs that a figure names, each once."""
    of_growth = (
        [run for series in figure.growth.series for run in series.runs] if figure.growth else []
    )
    return list(dict.fromkeys([*figure.runs, *of_growth]))
