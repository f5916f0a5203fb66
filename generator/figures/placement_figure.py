"""Drawings drawn from runs: which rank holds which layer, and what travels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from generator.content.exhibit import Figure
from generator.evidence.folio import Folio
from generator.figures.drawings import placement as drawing
from generator.figures.drawings.placement import Lane, Panel, Piece
from generator.figures.picture import Picture, Table, on_both
from runners.traces.records import RankRecord, Run


def _pieces(run: Run, rank: int) -> tuple[Piece, ...]:
    if run.model is None:
        return ()
    return tuple(
        Piece(
            name=layer.name,
            size=layer.bytes / (len(layer.ranks) if layer.is_sharded else 1),
            is_shard=layer.is_sharded,
        )
        for layer in run.model.layers
        if rank in layer.ranks
    )


def _travels(path: str, run: Run, folio: Folio) -> tuple[str, ...]:
    """What travels in one step: each operation, summed over the ranks that send."""
    sent: dict[str, list[str]] = {}
    for position, record in enumerate(run.ranks):
        for operation in _sent(record):
            value = folio.value(f"{path}.ranks[{position}].collectives['{operation}'].bytes")
            if value is not None:
                sent.setdefault(operation, []).append(str(value))
    lines = []
    for operation, sizes in sorted(sent.items(), key=lambda one: _first_call(run, one[0])):
        distinct = list(dict.fromkeys(sizes))
        words = folio.ui["figure"]
        lines.append(f"{operation}: {words['payload']} {' / '.join(distinct)} {words['per_rank']}")
    return tuple(lines)


def _first_call(run: Run, operation: str) -> tuple[float, str]:
    """When ranks first call an operation in the recorded step; without a record, by its name."""
    spans = (one for one in run.timing.timeline if one.name == operation)
    return min((one.start_seconds for one in spans), default=float("inf")), operation


def _panel(path: str, run: Run, folio: Folio) -> Panel:
    """What the ranks of a run hold, and what they send."""
    rank = folio.ui["figure"]["rank"]
    lanes = tuple(
        Lane(f"{rank} {position}", _held(path, position, folio), _pieces(run, position))
        for position in range(run.world_size)
    )
    return Panel(folio.strategy(run), lanes, _travels(path, run, folio))


def _held(path: str, position: int, folio: Folio) -> str:
    value = folio.value(f"{path}.ranks[{position}].memory.largest.parameters_bytes")
    return str(value) if value is not None else ""


def _table(placed: Mapping[str, Run], folio: Folio) -> Table:
    words = folio.ui["figure"]
    table = Table([words["layer"], words["parameters"], words["bytes"], words["holds"]])
    for path, run in placed.items():
        assert run.model is not None
        name = f"{folio.strategy(run)} · " if len(placed) > 1 else ""
        for position, layer in enumerate(run.model.layers):
            base = f"{path}.model.layers[{position}]"
            how = words["shards"] if layer.is_sharded else words["whole"]
            ranks = ", ".join(f"{words['rank']} {rank}" for rank in layer.ranks)
            table.rows.append(
                [
                    f"{name}{layer.name}",
                    folio.cell(f"{base}.num_parameters"),
                    folio.cell(f"{base}.bytes"),
                    f"{ranks}, {how}",
                ]
            )
    return table


def _by_rank(placed: Mapping[str, Run], folio: Folio) -> Table:
    """What a drawing prints beside each rank: the parameters that it holds, and its payload."""
    words = folio.ui["figure"]
    table = Table([words["of_rank"], words["bytes"]])
    for path, run in placed.items():
        name = f"{folio.strategy(run)} · " if len(placed) > 1 else ""
        for position, record in enumerate(run.ranks):
            base, rank = f"{path}.ranks[{position}]", f"{name}{words['rank']} {position}"
            if record.memory and record.memory.largest:
                held = folio.cell(f"{base}.memory.largest.parameters_bytes")
                table.rows.append([f"{rank} · {words['parameters'].lower()}", held])
            for operation in _sent(record):
                sent = folio.cell(f"{base}.collectives['{operation}'].bytes")
                table.rows.append([f"{rank} · {operation}", sent])
    return table


def _sent(record: RankRecord) -> list[str]:
    """The operations in which a rank sends."""
    found = {one.operation for one in record.collectives}
    return sorted(found - {"recv", "barrier"})


def placement(figure: Figure, folio: Folio) -> Picture:
    """What each rank holds, as wide as its bytes, and what travels between the ranks in a step."""
    runs = {path: folio.run(path) for path in figure.runs}
    placed = {path: run for path, run in runs.items() if run and run.model}
    panels = [_panel(path, run, folio) for path, run in placed.items()]
    table = _table(placed, folio)
    if not placed:
        return Picture(table)
    description = " ".join(map(drawing.in_words, panels))
    draw = partial(drawing.panels, panels)
    return Picture(table, on_both(draw, figure, folio, description), _by_rank(placed, folio))
