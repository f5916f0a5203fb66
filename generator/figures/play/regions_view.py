"""Where the runs of a figure lie in a plane that its law divides, and where devices lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from generator.content.exhibit import Figure, Regions
from generator.content.typesetting import plain
from generator.evidence.folio import Folio
from generator.evidence.play_states import State
from generator.evidence.value import numeric
from generator.figures.drawings import regions as drawing
from generator.figures.drawings.regions import Place, Words
from generator.figures.play.seen import Seen, both


def regions(states: Sequence[State], figure: Figure, folio: Folio) -> list[Seen]:
    """All runs in one plane; those of a state stand out."""
    assert figure.play is not None
    assert figure.play.regions is not None
    written = figure.play.regions
    words = Words(*(
        plain(folio.line(text)) for text in
        (written.x_label, written.y_label, written.above, written.below, written.runs)
    ))  # fmt: skip
    marks = [
        Place(numeric(found), numeric(found), plain(folio.line(mark.label)))
        for mark in written.marks
        if (found := folio.value(mark.x)) is not None
    ]
    seen = []
    for state in states:
        shown = {one.path for one in state.runs}
        places = list(_places(states, written, shown, folio))
        says = "; ".join(one.say for one in places if one.is_shown)
        cells = tuple(
            {words.x_title: folio.show(found)}
            for one in state.runs
            if (found := folio.evidence.one(written.x, {"run": one.path})) is not None
        )
        seen.append(Seen(both(drawing.regions, places, marks, words), says, cells))
    return seen


def _places(
    states: Sequence[State], written: Regions, shown: set[str], folio: Folio
) -> Iterator[Place]:  # fmt: skip
    for one in (run for state in states for run in state.runs):
        x, y = (folio.evidence.one(what, {"run": one.path}) for what in (written.x, written.y))
        if x is not None and y is not None:
            side = written.above if numeric(y) >= numeric(x) else written.below
            say = f"{one.path}: {y}, {x}: {plain(folio.line(side))}"
            yield Place(numeric(x), numeric(y), say, one.path in shown)
