"""A figure that readers operate, as a page holds it.

The page itself has one state, the controls, and a table with a row for each run of every state, so
that nothing is lost where there is no script. The drawings of the other states are compressed in a
script of the figure's own, `assets/figures/….js`, which play.js loads when the figure comes near.
"""

import base64
import json
import zlib
from collections.abc import Callable, Mapping, Sequence

from markupsafe import Markup

from generator.content.exhibit import Figure, View
from generator.content.exhibit import Play as FigurePlay
from generator.figures.charts import loss
from generator.figures.picture import DrawnState, NumberTable, Picture, Play, StateRow, plain_line
from generator.figures.play.bar_views import memory, sent
from generator.figures.play.grid_views import block, ring
from generator.figures.play.states import Control, PlayState, states
from generator.figures.play.step_views import overlap, schedule, unit_steps
from generator.printing.folio import Folio
from generator.values.units import BYTES

VIEWS: dict[View, Callable[[Sequence[PlayState], Figure, Folio], list[DrawnState]]] = {
    "memory": memory, "sent": sent, "loss": loss, "schedule": schedule,
    "chunks": ring, "overlap": overlap, "units": unit_steps, "block": block,
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
    task = folio.line(figure.play.task)
    script = packed(figure.id, [state.at for state in all_states], drawn, folio)
    words, head, rows = _table(figure.play, controls, all_states, by_view, folio)
    runs = [labelled.path for state in all_states for labelled in state.runs]
    facts = [folio.evidence.value(fact.value, run) for fact in figure.play.facts for run in runs]
    firsts = [of_view[0] for of_view in by_view.values()]
    played = Play(
        task, script, controls, all_states[0], drawn[0],
        moments=[words for first in firsts for _, words in first.moments],
        budget=next((first.budget for first in firsts if first.budget), None),
        words=words, head=head, rows=rows,
        is_drawn={*by_view} <= {"memory", "sent"} and all(v.unit == BYTES for v in facts if v),
    )  # fmt: skip
    return Picture(NumberTable([]), play=played)


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
        called = f"{plain_line(figure.title, folio)}: {title}"
        svg = state_view.svg(f"{figure.id}-{view}", called, is_operated=folio.opens)
        if state_view.moments:
            told = json.dumps(state_view.moments, ensure_ascii=False, separators=(",", ":"))
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
    play: FigurePlay, controls: Sequence[Control], all_states: Sequence[PlayState],
    by_view: Mapping[View, Sequence[DrawnState]], folio: Folio,
) -> tuple[list[str], list[str], list[StateRow]]:  # fmt: skip
    """Heads of the words that tell runs apart, heads of numbers, a row for each run of a state."""
    words = [control.label for control in controls]
    if has_labels := any(labelled.label for state in all_states for labelled in state.runs):
        words.append(folio.evidence.plain(play.beside.label) if play.beside else "Run")
    in_order = sorted(enumerate(all_states), key=lambda numbered: numbered[1].at)
    runs = [(n, state, *run) for n, state in in_order for run in enumerate(state.runs)]
    drawn = {
        (n, number): {
            name: cell
            for views in by_view.values()
            for name, cell in (views[n].cells[number] if views[n].cells else {}).items()
        }
        for n, _, number, _ in runs
    }
    names = list(dict.fromkeys(name for cells in drawn.values() for name in cells))
    rows = []
    for n, state, number, labelled in runs:
        options = [control.options[at] for control, at in zip(controls, state.at, strict=True)]
        facts = (folio.evidence.value(fact.value, labelled.path) for fact in play.facts)
        known = (drawn[n, number].get(name, NOTHING) for name in names)
        nature = "" if labelled.run.nature in ("real", folio.unmarked) else labelled.run.nature
        rows.append(
            StateRow(
                n, [*options, *[labelled.label] * has_labels], labelled.path, nature,
                folio.place_of(labelled.path), [*map(folio.printed, facts), *known],
            )
        )  # fmt: skip
    return words, [*(plain_line(fact.label, folio) for fact in play.facts), *names], rows
