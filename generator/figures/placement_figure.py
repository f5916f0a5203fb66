"""Which rank holds which layer, and what travels between ranks in a step."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from generator.content.exhibit import Figure
from generator.figures.drawings.stacks import BarPart, Panel, Stack, panels
from generator.figures.picture import DrawnState, NumberTable, Picture, both_widths, plain_line
from generator.printing.folio import Folio
from runners.core.trace.records import Run

# Formulas of a ring; any other operation is a message to each peer.
OVER_A_RING = {"all_reduce", "all_gather", "reduce_scatter", "broadcast"}


def placement(figure: Figure, folio: Folio) -> Picture:
    """`Picture`: SVG of the layers that each rank of a figure's runs holds, and sends; a table."""
    runs = {path: folio.run(path) for path in figure.runs}
    placed = {path: run for path, run in runs.items() if run and run.model}
    table = _table(placed, folio)
    if not placed:
        return Picture(table)
    drawn = [_panel(path, run, folio) for path, run in placed.items()]
    says = " ".join(map(_in_words, drawn))
    state = DrawnState(both_widths(panels, drawn), says)
    title = plain_line(figure.title, folio)
    return Picture(table, state.svg(figure.id, title, is_operated=folio.opens))


def _panel(path: str, run: Run, folio: Folio) -> Panel:
    assert run.model is not None
    ranks = []
    for rank in range(run.world_size):
        label = f"rank {rank}"
        parts = [
            BarPart(
                "shard" if layer.is_sharded else "layer",
                layer.name,
                layer.bytes / (len(layer.ranks) if layer.is_sharded else 1),
                f"{label}: {layer.name}",
            )
            for layer in run.model.layers
            if rank in layer.ranks
        ]
        held = folio.value(f"{path}.ranks[{rank}].memory.largest.parameters_bytes")
        ranks.append(Stack("", label, parts, "" if held is None else str(held)))
    return Panel(folio.strategy(run), ranks, list(_travels(path, run, folio)))


def _travels(path: str, run: Run, folio: Folio) -> Iterator[str]:
    """A line for each operation of a step: the bytes that each rank sends which sends any."""
    sent: dict[str, list[str]] = {}
    for position in range(len(run.ranks)):
        for operation, how in sorted(sent_bytes(path, run, position).items()):
            sent.setdefault(operation, []).append(str(folio.value(how)))
    for operation, sizes in sent.items():
        how = " over a ring" if operation in OVER_A_RING else ""
        yield f"{operation}: {' / '.join(dict.fromkeys(sizes))} sent per rank{how}"


def _ranks(ranks: Iterable[int]) -> str:
    return ", ".join(f"rank {rank}" for rank in ranks)


def _in_words(panel: Panel) -> str:
    ranks = "; ".join(
        f"{rank.label} holds {', '.join(part.name for part in rank.parts)}"
        + (f" ({rank.words})" if rank.words else "")
        for rank in panel.ranks
    )
    travels = f" In a step: {'; '.join(panel.travels)}." if panel.travels else ""
    return f"{panel.title}: {ranks}.{travels}"


def _table(placed: Mapping[str, Run], folio: Folio) -> NumberTable:
    """Bytes of the layers, equal neighbours as one, and what each rank holds and sends."""
    table = NumberTable(["What", "Bytes", "Held or sent by"])
    for path, run in placed.items():
        assert run.model is not None
        name = f"{folio.strategy(run)} · " if len(placed) > 1 else ""
        layers = enumerate(run.model.layers)
        for _, same in groupby(
            layers, lambda numbered: (numbered[1].bytes, numbered[1].is_sharded, numbered[1].ranks)
        ):
            (position, first), *others = same
            named = f"{first.name}–{others[-1][1].name}, each" if others else first.name
            how = "in shards" if first.is_sharded else "whole"
            size = folio.cell(f"{path}.model.layers[{position}].bytes")
            table.rows.append([f"{name}{named}", size, f"{how} on {_ranks(first.ranks)}"])
        alike: dict[tuple[str, str], list[tuple[int, str]]] = {}
        for position, record in enumerate(run.ranks):
            read = sent_bytes(path, run, position)
            if record.memory and record.memory.largest:
                held = f"{path}.ranks[{position}].memory.largest.parameters_bytes"
                read = {"parameters": held} | read
            for what, how in read.items():
                alike.setdefault((what, str(folio.value(how))), []).append((position, how))
        for (what, _), holders in alike.items():
            size = folio.cell(holders[0][1])
            table.rows.append([f"{name}{what}", size, _ranks(position for position, _ in holders)])
    return table


def sent_bytes(path: str, run: Run, place: int) -> dict[str, str]:
    """By operation, the expression of the bytes that the rank at `place` sends in a step, if any.

    A broadcast passes around the ring too, and all ranks share its work.
    """
    rank, expressions = run.ranks[place], {}
    for c in rank.collectives:
        payload = f"{path}.ranks[{place}].collectives['{c.operation}'].bytes"
        is_root = any(rank.rank in (via.source, via.destination) for via in c.transfers)
        ring, share = (f"{law}_bytes({payload}, {path}.world_size)" for law in ("ring", "share"))
        sends = {
            "all_reduce": ring,
            "scatter": share if is_root else "",
            "gather": "" if is_root else payload,
            "send": payload,
            "recv": "",
            "barrier": "",
        }
        expressions[c.operation] = sends.get(c.operation, share)
    return {operation: how for operation, how in expressions.items() if how}
