"""Which rank holds which layer, and what travels between ranks in a step."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby

from proofbook.generator.content.exhibit import Figure
from proofbook.generator.kinds.figures.drawings.stacks import BarPart, Panel, Stack, panels
from proofbook.generator.kinds.figures.picture import DrawnState, NumberRow, Picture, plain_line
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values.value import Value
from proofbook.runners.closed_forms.steps import ring_bytes, share_bytes
from proofbook.runners.core.trace.records import Run

# Formulas of a ring; any other operation is a message to each peer.
OVER_A_RING = {"all_reduce", "all_gather", "reduce_scatter", "broadcast"}
HELD = "memory", "largest", "parameters_bytes"


def placement(figure: Figure, folio: Folio) -> Picture:
    """`Picture`: SVG of the layers that each rank of a figure's runs holds, and sends; a table."""
    runs = {path: folio.run(path) for path in figure.runs}
    placed = {path: run for path, run in runs.items() if run and run.model}
    head, rows = ["What", "Bytes", "Held or sent by"], list(_rows(placed, folio))
    if not placed:
        return Picture(head)
    drawn = [_panel(path, run, folio) for path, run in placed.items()]
    state = DrawnState(partial(panels, drawn), " ".join(map(_in_words, drawn)))
    title = plain_line(figure.title, folio)
    return Picture(head, rows, state.svg(figure.id, title, is_operated=folio.opens))


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
        held = folio.reading(path, "ranks", rank, *HELD)
        ranks.append(Stack("", label, parts, "" if held is None else str(held)))
    return Panel(folio.strategy(run), ranks, list(_travels(path, run, folio)))


def _travels(path: str, run: Run, folio: Folio) -> Iterator[str]:
    """A line for each operation of a step: the bytes that each rank sends which sends any."""
    sent: dict[str, list[str]] = {}
    for position in range(len(run.ranks)):
        for operation, size in sorted(sent_bytes(path, run, position, folio).items()):
            sent.setdefault(operation, []).append(str(size))
    for operation, sizes in sent.items():
        ring = " over a ring" if operation in OVER_A_RING else ""
        yield f"{operation}: {' / '.join(dict.fromkeys(sizes))} sent per rank{ring}"


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


def _rows(placed: Mapping[str, Run], folio: Folio) -> Iterator[NumberRow]:
    """Bytes of the layers, equal neighbours as one, and what each rank holds and sends."""
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
            num_bytes = folio.printed(folio.reading(path, "model", "layers", position, "bytes"))
            yield [f"{name}{named}", num_bytes, f"{how} on {_ranks(first.ranks)}"]
        alike: dict[tuple[str, str], list[tuple[int, Value]]] = {}
        for position in range(len(run.ranks)):
            held = folio.reading(path, "ranks", position, *HELD)
            sizes = {"parameters": held} if held else {}
            for what, size in (sizes | sent_bytes(path, run, position, folio)).items():
                alike.setdefault((what, str(size)), []).append((position, size))
        for (what, _), holders in alike.items():
            ranks = _ranks(position for position, _ in holders)
            yield [f"{name}{what}", folio.show(holders[0][1]), ranks]


def sent_bytes(path: str, run: Run, place: int, folio: Folio) -> dict[str, Value]:
    """By operation, the bytes that the rank at `place` sends in a step, if any.

    A broadcast passes around the ring too, and all ranks share its work.
    """
    rank, num_ranks, sent = run.ranks[place], folio.reading(path, "world_size"), dict[str, Value]()
    for collective in rank.collectives:
        operation, ends = collective.operation, collective.transfers
        is_root = any(rank.rank in (via.source, via.destination) for via in ends)
        payload = folio.reading(path, "ranks", place, "collectives", operation, "bytes")
        if payload and operation not in ("recv", "barrier", "gather" if is_root else "scatter"):
            law = ring_bytes if operation == "all_reduce" else share_bytes
            has_law = operation not in ("send", "gather")
            sent[operation] = law(payload, num_ranks) if has_law else payload
    return sent
