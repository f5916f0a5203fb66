"""A figure that readers operate, as a page holds it.

The page itself has one state, the controls, and a table with a row for each run of every state, so
that nothing is lost where there is no script. The drawings of the other states are compressed in a
script of the figure's own, `assets/figures/….js`, which play.js loads when the figure comes near.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace

from markupsafe import Markup

from generator.content.exhibit import Figure, View
from generator.content.typesetting import plain
from generator.evidence.folio import ABSENT, Folio
from generator.evidence.play_states import Control, State, states
from generator.evidence.value import numeric
from generator.figures.picture import Picture, Table
from generator.figures.play.block_view import block
from generator.figures.play.memory_view import memory
from generator.figures.play.played_views import overlap, unit_steps
from generator.figures.play.regions_view import regions
from generator.figures.play.ring_view import chunks
from generator.figures.play.seen import Seen, byte_unit
from generator.figures.play.step_views import loss, payload, schedule

VIEWS: dict[View, Callable[[Sequence[State], Figure, Folio], list[Seen]]] = {
    "memory": memory, "payload": payload, "loss": loss, "regions": regions,
    "schedule": schedule, "chunks": chunks, "overlap": overlap, "units": unit_steps, "block": block,
}  # fmt: skip
FOLDER = "assets/figures"
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)  # of the budget
MOST_STEPS = 200


def play(figure: Figure, folio: Folio) -> Picture:
    """All states of a figure; the first run's state is the one that the page shows."""
    assert figure.play is not None
    controls, found = states(figure, folio)
    seen = {view: VIEWS[view](found, figure, folio) for view in figure.play.shows}
    if not found or not all(len(one) == len(found) for one in seen.values()):
        return Picture(Table([]))
    drawn = [_drawn(figure, n, state, seen, folio) for n, state in enumerate(found)]
    name = packed(figure.id, [one.at for one in found], drawn, folio)
    words, head, rows = _table(figure, controls, found, seen, folio)
    played = SimpleNamespace(
        task=folio.line(figure.play.task),
        script=name,
        controls=controls,
        first=found[0],
        words=words,  # heads of the columns that name a row
        head=head,  # and of those with its numbers
        rows=rows,
        drawn=drawn[0],
        told=[words for one in seen.values() for _, words in one[0].moments],
        budget=_budget(figure, found, folio),
    )
    return Picture(Table([]), play=played)


def _drawn(
    figure: Figure,
    position: int,
    state: State,
    seen: Mapping[View, Sequence[Seen]],
    folio: Folio,
) -> Markup:
    """Each view of one state below the other, titled by what it shows and how it is known."""
    words, parts = folio.ui["play"], []
    is_simulated = any(one.run.nature == "simulated" for one in state.runs)
    for view, found in seen.items():
        kind = words["kinds"][
            "simulated" if is_simulated else "counted" if view == "payload" else "measured"
        ]
        one = found[position]
        title = words["views"][one.title or view].format(kind=kind)
        shown = one.svg(f"{figure.id}-{view}", f"{plain(folio.line(figure.title))}: {title}")
        if one.moments:
            told = json.dumps(one.moments, ensure_ascii=False, separators=(",", ":"))
            shown = Markup('<div data-moments="{}">{}</div>').format(told, shown)
        parts.append(Markup('<p class="pb-view">{}</p>{}').format(title, shown))
    return Markup("").join(parts)


def packed(
    name: str, places: Sequence[tuple[int, ...]], drawn: Sequence[Markup], folio: Folio
) -> str:
    """Put what all states show into a script that a page under its policy may load.

    Args:
        name: the figure's id.
        places: of each state, the option of each control.
        drawn: what it shows.
        folio: the page, whose assets the script joins.

    Returns:
        The path of the script under the site's root.
    """
    states_of = [[at, str(markup)] for at, markup in zip(places, drawn, strict=True)]
    text = json.dumps(states_of, ensure_ascii=True, separators=(",", ":"))
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    letters = base64.b64encode(packer.compress(text.encode()) + packer.flush()).decode()
    path = f"{FOLDER}/{folio.path.removesuffix('.md').replace('/', '-')}-{name}.js"
    folio.assets[path] = f'proofbook.play("{name}","{letters}");\n'.encode()
    return path


def _table(
    figure: Figure,
    controls: Sequence[Control],
    found: Sequence[State],
    seen: Mapping[View, Sequence[Seen]],
    folio: Folio,
) -> tuple[list[str], list[str], list[SimpleNamespace]]:
    """A row for each run of every state: its options, its facts, and what the views drew."""
    assert figure.play is not None
    facts, beside = figure.play.facts, figure.play.beside
    has_labels = any(one.label for state in found for one in state.runs)
    words = [one.label for one in controls]
    if has_labels:
        words.append(folio.evidence.plain(beside.label) if beside else folio.ui["figure"]["run"])
    head = [plain(folio.line(fact.label)) for fact in facts]
    drawn = [[_drawn_of(position, number, seen) for number in range(len(state.runs))]
             for position, state in enumerate(found)]  # fmt: skip
    names = list(dict.fromkeys(name for one in drawn for cells in one for name in cells))
    rows = []
    for position, state in enumerate(found):
        options = [one.options[at] for one, at in zip(controls, state.at, strict=True)]
        for one, known in zip(state.runs, drawn[position], strict=True):
            named = (*options, *([one.label] if has_labels else []))
            cells = (
                *(folio.shown(folio.evidence.one(fact.value, {"run": one.path})) for fact in facts),
                *(known.get(name, ABSENT) for name in names),
            )
            nature = one.run.nature
            rows.append(
                SimpleNamespace(
                    state=position,
                    words=named,  # its options
                    cells=cells,  # its numbers
                    run=one.path,
                    nature="" if nature in ("real", folio.text.unmarked) else nature,
                    source=folio.place_of(one.path),
                )
            )
    return words, head + names, rows


def _drawn_of(position: int, number: int, seen: Mapping[View, Sequence[Seen]]) -> dict[str, Markup]:
    """What all views say of one run of a state."""
    cells = [found[position].cells for found in seen.values()]
    return {name: said for one in cells if one for name, said in one[number].items()}


def _budget(figure: Figure, found: Sequence[State], folio: Folio) -> SimpleNamespace | None:
    """Where the line starts, and how far readers may move it, in the unit of the axis."""
    assert figure.play is not None
    written = folio.value(figure.play.budget) if figure.play.budget else None
    if written is None:
        return None
    sizes = [
        rank.memory.peak_bytes or 0
        for state in found for one in state.runs for rank in one.run.ranks if rank.memory
    ]  # fmt: skip
    unit, size = byte_unit(max(sizes))
    top = max(*sizes, numeric(written)) * 1.05 / size
    step = next(one for one in STEPS if top / one <= MOST_STEPS)
    start = round(numeric(written) / size, 3)
    return SimpleNamespace(
        start=start,
        low=round(start % step, 3),  # from which steps lead to `start`
        top=round(top, 3),
        step=step,
        unit=unit,
        shown=folio.show(written),
    )
