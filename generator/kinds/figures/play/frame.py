"""A figure that readers operate, as a page holds it.

The page itself has one state, the controls, and a table with a row for each run of every state, so
that nothing is lost where there is no script. The drawings of the other states are compressed in a
script of the figure's own, `assets/figures/….js`, which play.js loads when the figure comes near.
"""

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from markupsafe import Markup

from proofbook.generator.content.exhibit import Figure, View
from proofbook.generator.kinds.figures import picture
from proofbook.generator.kinds.figures.charts import loss
from proofbook.generator.kinds.figures.play import line_view, scores_view, step_views
from proofbook.generator.kinds.figures.play.bar_views import memory, sent
from proofbook.generator.kinds.figures.play.grid_views import block, cells, ring
from proofbook.generator.kinds.figures.play.mesh_view import mesh
from proofbook.generator.kinds.figures.play.states import Control, PlayState, states
from proofbook.generator.printing.folio import Folio, breakable
from proofbook.generator.values.units import BYTES
from proofbook.generator.values.value import Value

VIEWS: dict[View, Callable[[Sequence[PlayState], Figure, Folio], Iterator[picture.DrawnState]]] = {
    "memory": memory, "sent": sent, "loss": loss, "schedule": step_views.schedule,
    "chunks": ring, "overlap": step_views.overlap, "units": step_views.unit_steps, "block": block,
    "arrivals": step_views.arrivals, "turns": step_views.turns, "cells": cells, "mesh": mesh,
    "scores": scores_view.view, "line": line_view.view,
}  # fmt: skip
FOLDER = "assets/figures"
NOTHING = Markup("–")  # of a part that this run does not have


def play(figure: Figure, folio: Folio) -> picture.Picture:
    """`Picture` whose `play` has controls, the first state drawn, a script of all, and a table."""
    written = figure.play
    assert written is not None
    controls, all_states = states(figure, folio)
    by_view = [list(VIEWS[view](all_states, figure, folio)) for view in written.shows if all_states]
    if not all_states or not all(by_view):
        return picture.Picture()
    by_state = [
        dict(zip(written.shows, views, strict=True)) for views in zip(*by_view, strict=True)
    ]
    drawn = [
        _state_markup(figure, state, views, folio)
        for state, views in zip(all_states, by_state, strict=True)
    ]
    task = folio.line(written.task or "")
    script = packed(figure.id, [state.at for state in all_states], drawn, folio)
    runs = [labelled.path for state in all_states for labelled in state.runs]
    facts = {run: [folio.evidence.value(fact.value, run) for fact in written.facts] for run in runs}
    are_bytes = all(value.unit == BYTES for of_run in facts.values() for value in of_run if value)
    names, rows = _table(controls, all_states, chain(*by_view), facts, folio)
    played = picture.Play(
        task, folio.root + script, controls, all_states[0], drawn[0],
        moments=[words for view in by_state[0].values() for _, words in view.moments],
        budget=next((view.budget for view in by_state[0].values() if view.budget), None),
        words=[control.label for control in controls]
        + ([folio.evidence.plain(written.beside.label)] if written.beside else []),
        head=[*(picture.plain_line(fact.label, folio) for fact in written.facts), *names],
        rows=rows, is_drawn={*written.shows} <= {"memory", "sent"} and are_bytes,
    )  # fmt: skip
    return picture.Picture(play=played)


def _state_markup(
    figure: Figure, state: PlayState, views: Mapping[View, picture.DrawnState], folio: Folio
) -> Markup:
    """The drawings of all views of a state, each below its title."""
    words, drawn = folio.ui["play"], Markup()
    is_simulated = any(labelled.run.nature == "simulated" for labelled in state.runs)
    kind = "simulated" if is_simulated else "measured"
    for name, view in views.items():
        title = words["views"][view.title or name].format(kind=kind)
        called = f"{picture.plain_line(figure.title, folio)}: {title}"
        svg = view.svg(f"{figure.id}-{name}", called, is_operated=folio.opens)
        if view.moments:
            told = json.dumps(view.moments, ensure_ascii=False, separators=(",", ":"))
            moments = Markup(' data-moments="{}"').format(told) if folio.opens else ""
            svg = Markup("<div{}>{}</div>").format(moments, svg)
        drawn += Markup('<p class="pb-view">{}</p>{}').format(title, svg)
    return drawn


def packed(
    name: str, places: Sequence[tuple[int, ...]], drawn: Sequence[Markup], folio: Folio
) -> str:
    """Put all states' drawings, compressed, into a script among the page's assets; return its path.

    A state is known by its place among the options of each control.
    """
    states_of = [[at, str(markup)] for at, markup in zip(places, drawn, strict=True)]
    text = json.dumps(states_of, ensure_ascii=True, separators=(",", ":"))
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    letters = base64.b64encode(packer.compress(text.encode()) + packer.flush()).decode()
    path = f"{FOLDER}/{folio.path.removesuffix('.md').replace('/', '-')}-{name}.js"
    folio.assets[path] = f'proofbook.play("{name}","{letters}");\n'.encode()
    return path


def _table(
    controls: Sequence[Control], all_states: Sequence[PlayState],
    views: Iterable[picture.DrawnState], facts: Mapping[str, Sequence[Value | None]], folio: Folio,
) -> tuple[list[str], list[picture.StateRow]]:  # fmt: skip
    """Names of the values drawn; a row for each run of a state, with its facts and these values."""
    in_order = sorted(enumerate(all_states), key=lambda numbered: numbered[1].at)
    runs = [(n, state.at, labelled) for n, state in in_order for labelled in state.runs]
    drawn: dict[str, dict[str, Markup]] = {labelled.path: {} for *_, labelled in runs}
    for path, values in chain.from_iterable(view.cells.items() for view in views):
        drawn[path].update(values)
    names = list(dict.fromkeys(chain.from_iterable(drawn.values())))
    rows = []
    for n, at, labelled in runs:
        path = labelled.path
        words = [control.options[place] for control, place in zip(controls, at, strict=True)]
        words += [labelled.label] if labelled.label else []
        nature = "" if labelled.run.nature in ("real", folio.unmarked) else labelled.run.nature
        numbers = [folio.printed(value) for value in facts[path]]
        numbers += [drawn[path].get(name, NOTHING) for name in names]
        href = folio.root + folio.place_of(path)
        rows.append(picture.StateRow(n, words, breakable(path), nature, href, numbers))
    return names, rows
