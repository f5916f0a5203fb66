"""A figure that readers operate, as a page holds it.

The page itself has one state, the controls, and a table with a row for each run of every state, so
that nothing is lost where there is no script. The drawings of the other states are compressed in a
script of the figure's own, `assets/figures/….js`, which play.js loads when the figure comes near.
"""

import base64
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace

from markupsafe import Markup

from generator.content.exhibit import Figure, View
from generator.figures.picture import DrawnState, NumberTable, Picture, plain_line
from generator.figures.play.bar_views import memory, sent
from generator.figures.play.chart_views import loss, regions
from generator.figures.play.grid_views import block, ring
from generator.figures.play.states import Control, PlayState, states
from generator.figures.play.step_views import overlap, schedule, unit_steps
from generator.printing.folio import Folio
from generator.values.units import BYTES

VIEWS: dict[View, Callable[[Sequence[PlayState], Figure, Folio], list[DrawnState]]] = {
    "memory": memory, "sent": sent, "loss": loss, "regions": regions,
    "schedule": schedule, "chunks": ring, "overlap": overlap, "units": unit_steps, "block": block,
}  # fmt: skip
FOLDER = "assets/figures"
NOTHING = Markup("–")  # of a part that this run does not have


def play(figure: Figure, folio: Folio) -> Picture:
    """`Picture` whose `play` has controls, the first state drawn, a script of all, and a table."""
    assert figure.play is not None
    controls, all_states = states(figure, folio)
    by_view = {
        view: VIEWS[view](all_states, figure, folio) for view in figure.play.shows if all_states
    }
    if not all(len(of_view) == len(all_states) for of_view in by_view.values()) or not all_states:
        return Picture(NumberTable([]))
    drawn = [_state_markup(figure, n, state, by_view, folio) for n, state in enumerate(all_states)]
    return Picture(
        NumberTable([]),
        play=SimpleNamespace(
            task=folio.line(figure.play.task),
            script=packed(figure.id, [state.at for state in all_states], drawn, folio),
            controls=controls,
            first=all_states[0],
            drawn=drawn[0],
            moments=[words for of_view in by_view.values() for _, words in of_view[0].moments],
            budget=next(
                (of_view[0].budget for of_view in by_view.values() if of_view[0].budget), None
            ),
            **_table(figure, controls, all_states, by_view, folio),
        ),
    )


def _state_markup(
    figure: Figure,
    position: int,
    state: PlayState,
    by_view: Mapping[View, Sequence[DrawnState]],
    folio: Folio,
) -> Markup:
    """The drawings of all views of a state, each below its title."""
    words, drawn = folio.ui["play"], Markup()
    is_simulated = any(labelled.run.nature == "simulated" for labelled in state.runs)
    for view, of_view in by_view.items():
        kind = "simulated" if is_simulated else "measured"
        state_view = of_view[position]
        title = words["views"][state_view.title or view].format(kind=kind)
        svg = state_view.svg(f"{figure.id}-{view}", f"{plain_line(figure.title, folio)}: {title}")
        if state_view.moments:
            told = json.dumps(state_view.moments, ensure_ascii=False, separators=(",", ":"))
            svg = Markup('<div data-moments="{}">{}</div>').format(told, svg)
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
    figure: Figure, controls: Sequence[Control], all_states: Sequence[PlayState],
    by_view: Mapping[View, Sequence[DrawnState]], folio: Folio,
) -> dict[str, object]:  # fmt: skip
    """A row for each run of every state: what tells it apart, its facts, and what is drawn of it.

    `words` are the heads of the columns that tell rows apart, `head` those of the others;
    `is_drawn` tells that bars show all of its numbers.
    """
    assert figure.play is not None
    facts, beside = figure.play.facts, figure.play.beside
    has_labels = any(labelled.label for state in all_states for labelled in state.runs)
    words = [control.label for control in controls]
    if has_labels:
        words.append(folio.evidence.plain(beside.label) if beside else "Run")
    rows = []
    for position, state in sorted(enumerate(all_states), key=lambda numbered: numbered[1].at):
        options = [control.options[at] for control, at in zip(controls, state.at, strict=True)]
        for number, labelled in enumerate(state.runs):
            drawn: dict[str, Markup] = {}
            for cells in (views[position].cells for views in by_view.values()):
                drawn |= cells[number] if cells else {}
            nature = labelled.run.nature
            rows.append(
                SimpleNamespace(
                    state=position,
                    words=[*options, *([labelled.label] if has_labels else [])],
                    facts=[folio.evidence.value(fact.value, labelled.path) for fact in facts],
                    drawn=drawn,
                    run=labelled.path,
                    nature="" if nature in ("real", folio.unmarked) else nature,
                    source=folio.place_of(labelled.path),
                )
            )
    names = list(dict.fromkeys(name for row in rows for name in row.drawn))
    for row in rows:
        known = (row.drawn.get(name, NOTHING) for name in names)
        row.cells = [*map(folio.printed, row.facts), *known]
    head = [*(plain_line(fact.label, folio) for fact in facts), *names]
    sizes = [fact for row in rows for fact in row.facts if fact]
    is_drawn = set(by_view) <= {"memory", "sent"} and all(size.unit == BYTES for size in sizes)
    return {"words": words, "head": head, "rows": rows, "is_drawn": is_drawn}
