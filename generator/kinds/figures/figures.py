"""Figures: an author's `Figure` and the runs it names → drawings, and the numbers behind them.

The kinds have their readers beside this file, which turn runs into rows of words and numbers, and a
drawing in `drawings/`, which knows nothing of runs. Whatever is drawn also stands in a table, each
number with its provenance. A page shows a figure drawn once, or operated by readers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from markupsafe import Markup, escape

from proofbook.generator.content.exhibit import Figure
from proofbook.generator.kinds.figures.charts import bars, epochs, growth
from proofbook.generator.kinds.figures.picture import Picture, Play
from proofbook.generator.kinds.figures.placement_figure import placement
from proofbook.generator.kinds.figures.play import states as play_states
from proofbook.generator.kinds.figures.play.frame import play
from proofbook.generator.pages.elements.element import Apart, Element
from proofbook.generator.pages.elements.tables import Table, with_units
from proofbook.generator.printing.folio import REFERENCE, Folio, breakable
from proofbook.generator.values.regime import CROWDED, SPELLED, is_crowded
from proofbook.runners.core.trace.records import Run

KINDS: dict[str, Callable[[Figure, Folio], Picture]] = {
    "epochs": epochs,
    "placement": placement,
    "growth": growth,
    "bars": bars,
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
    named = _run_paths(figure, folio)
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
    ends = [series.ends for series in figure.growth.series if series.ends] if figure.growth else []
    title, caption = folio.line(figure.title), folio.line(" ".join([figure.caption, *ends]))
    picture = KINDS[figure.kind](figure, folio)
    return FigureOnPage(figure.id, title, caption, natures, picture, missing)


def exhibit(figure: Figure, question: str, folio: Folio) -> FigureOnPage | None:
    """`FigureOnPage` of a question, of a play its first state; None if the page has drawn it."""
    if figure.id in folio.figures:
        return None
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
    machines = map(folio.book.machine_of, filter(folio.book.run, _run_paths(figure, folio)))
    if folio.marks_reference and folio.book.reference.name in machines:
        natures.append(REFERENCE)
    return ", ".join(natures)


def _run_paths(figure: Figure, folio: Folio) -> list[str]:
    """Paths of all runs that a figure names, each once."""
    of_growth = (
        [run for series in figure.growth.series for run in series.runs] if figure.growth else []
    )
    cells = [cell for row in figure.bars.rows for cell in row.cells] if figure.bars else []
    of_bars = [run for cell in cells for run in folio.evidence.evaluate(cell).runs]
    return list(dict.fromkeys([*figure.runs, *of_growth, *of_bars]))


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
    if not play.rows[1:]:  # which a line of words holds
        return PlayedFigure(drawn, play=play)
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
