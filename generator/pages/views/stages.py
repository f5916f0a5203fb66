"""The stages of a trace, one at a time: a diagram of the ranks beside what the recorder read off.

Flow: an author's stages and the run they name → for each stage the row of `tables.py`, what each
rank held and what travelled, and the drawing of `drawings/lanes.py`. Whatever is drawn also stands
in words, each number with its provenance.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from markupsafe import Markup

from generator.content.lesson import Recorded, RecordedRow
from generator.content.typesetting import plain
from generator.evidence.folio import ABSENT, Folio
from generator.figures.drawings.lanes import Lane, Travel, lanes
from generator.pages.shown import Shown
from generator.pages.views import tables
from runners.traces.records import Held, Run, Stage

_NUMBERED = re.compile(r"([a-z]+)(\d+)")
_GIVES_LAYERS = frozenset({"wrap", "partition", "shard"})  # stages that give ranks their layers


def stages(flow: Recorded, folio: Folio) -> list[Shown]:
    """The stages of a run, each with its drawing."""
    run = folio.run(flow.run)
    recorded = {stage.name: stage for stage in run.stages} if run else {}
    return [
        _stage(flow, written, row, recorded.get(written.name), run, folio)
        for written, row in zip(flow.rows, tables.recorded(flow, "stages", folio), strict=True)
    ]


def _stage(
    flow: Recorded,
    written: RecordedRow,
    row: Shown,
    found: Stage | None,
    run: Run | None,
    folio: Folio,
) -> Shown:
    anchor = f"stage-{written.name.replace('_', '-')}"
    if found is None or run is None:
        return Shown(anchor=anchor, row=row, drawing=Markup(""), travelled=[], held=[])
    base = f"{flow.run}.stages['{found.name}']"
    drawn, travelled = _travels(flow.run, base, written, found, run, folio)
    rows = [_lane(rank, found, run, drawn, folio) for rank in range(run.world_size)]
    if _comes_before_layers(flow, written):
        rows = [row._replace(holds="") for row in rows]
    drawing = lanes(rows, drawn, folio.ui["trace"]["idle"]).svg(
        anchor,
        plain(row.title),
        _described(rows, travelled, folio),
        "pb-lanes",
    )
    return Shown(
        anchor=anchor,
        row=row,
        drawing=drawing,
        travelled=_told(travelled),
        held=_held(base, found, folio),
    )


def _comes_before_layers(flow: Recorded, written: RecordedRow) -> bool:
    """Whether a later stage gives the ranks the layers that they hold."""
    later = flow.rows[flow.rows.index(written) + 1 :]
    return any(one.name in _GIVES_LAYERS for one in later)


def _lane(rank: int, stage: Stage, run: Run, travels: Sequence[Travel], folio: Folio) -> Lane:
    held = next((one for one in stage.ranks if one.rank == rank), None)
    if held is None and stage.rank in (None, rank):
        held = Held(
            rank=rank, shape_in=stage.shape_in, shape_out=stage.shape_out, bytes=stage.bytes
        )
    sides = [_shape(side) for side in (held.shape_in, held.shape_out) if side] if held else []
    takes_part = any({one.source, one.destination} & {None, rank} for one in travels)
    works_on = " → ".join(sides) or (folio.ui["trace"]["takes_part"] if takes_part else "")
    return Lane(f"{folio.ui['figure']['rank']} {rank}", works_on, _layers(rank, run, folio))


def _shape(shape: Sequence[int]) -> str:
    return " × ".join(f"{size:,}" for size in shape)


def _layers(rank: int, run: Run, folio: Folio) -> str:
    """The layers that a rank holds, in a few words."""
    words = folio.ui["trace"]
    layers = run.model.layers if run.model else []
    own = [layer for layer in layers if rank in layer.ranks]
    if not own:
        return ""
    if any(layer.is_sharded for layer in own):
        return str(words["shards"])
    if len(own) == len(layers):
        return str(words["replica"] if run.world_size > 1 else words["whole_model"])
    if len(own) == 1:
        return own[0].name
    first, last = (_NUMBERED.fullmatch(one.name) for one in (own[0], own[-1]))
    if first and last and first[1] == last[1]:
        return f"{first[1]}s {first[2]}–{last[2]}"
    return f"{own[0].name}–{own[-1].name}"


def _travels(
    path: str, base: str, written: RecordedRow, found: Stage, run: Run, folio: Folio
) -> tuple[list[Travel], list[Shown]]:
    """What travelled, the heaviest first, as it is drawn and as it is told."""
    moves = [
        (one.operation, one.source, one.destination, one.bytes, f"{base}.moves[{position}].bytes")
        for position, one in enumerate(found.moves)
    ]
    if written.whole_step and not moves:
        moves = [
            (one.operation, None, None, one.bytes,
             f"{path}.ranks[0].collectives['{one.operation}'].bytes")
            for one in (run.ranks[0].collectives if run.ranks else [])
            if one.operation not in ("send", "recv", "barrier")
        ]  # fmt: skip
    drawn, told = [], []
    for operation, source, destination, _, expression in sorted(moves, key=lambda move: -move[3]):
        value = folio.value(expression)
        if value is None:
            continue
        drawn.append(Travel(f"{operation} {value}", source, destination))
        between = _between(operation, source, destination, folio)
        told.append(Shown(operation=operation, num_bytes=folio.show(value), between=between))
    return drawn, told


def _told(travelled: Sequence[Shown]) -> list[Shown]:
    """The same operation with the same payload, between several ranks, in one line."""
    found: dict[tuple[str, str], Shown] = {}
    for one in travelled:
        key = (one.operation, plain(one.num_bytes))
        known = found.get(key)
        found[key] = known.but(between=f"{known.between}, {one.between}") if known else one
    return list(found.values())


def _between(operation: str, source: int | None, destination: int | None, folio: Folio) -> str:
    """From which rank to which; the root of a scatter or gather passes itself a share as well."""
    words, rank = folio.ui["trace"], folio.ui["figure"]["rank"]
    if source is None and destination is None:
        return str(words["among_all"])
    gives = words["every_rank"] if source is None else f"{rank}\u00a0{source}"
    receives = words["every_rank"] if destination is None else f"{rank}\u00a0{destination}"
    shared = f", {words['own_share']}" if operation in ("scatter", "gather") else ""
    return f"{gives} → {receives}{shared}"


def _held(base: str, found: Stage, folio: Folio) -> list[tuple[Markup, list[Markup]]]:
    """A row a rank, where what they held differs."""
    if len({(*one.shape_in, 0, *one.shape_out) for one in found.ranks}) < 2:
        return []
    rank = folio.ui["figure"]["rank"]
    rows = []
    for position, one in enumerate(found.ranks):
        place = f"{base}.ranks[{position}]"
        sides = [
            folio.cell(f"{place}.{side} | shape") if getattr(one, side) else ABSENT
            for side in ("shape_in", "shape_out")
        ]
        name = Markup('<span class="pb-label">{} {}</span>').format(rank, one.rank)
        rows.append((name, [*sides, folio.cell(f"{place}.bytes")]))
    return rows


def _described(rows: Sequence[Lane], travelled: Sequence[Shown], folio: Folio) -> str:
    idle = folio.ui["trace"]["idle"]
    told = [
        f"{row.label}: {', '.join(filter(None, [row.works_on or idle, row.holds]))}" for row in rows
    ]
    told += [f"{one.operation} {plain(one.num_bytes)} {one.between}" for one in travelled]
    return "; ".join(told)
