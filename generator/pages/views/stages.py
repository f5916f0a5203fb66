"""What a run recorded step by step: tables of it, and of stages also a diagram of the ranks.

Flow: an author's rows and the run they name → for each row shapes, values and facts as the recorder
read them off the tensors; of a stage also what travelled, and the drawing of `drawings/lanes.py`.
Whatever is drawn also stands in words, each number with its provenance.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

from markupsafe import Markup

from generator.content.lesson import Recorded, RecordedRow
from generator.figures.drawings.lanes import IDLE, Lane, Travel, lanes
from generator.pages.view import View
from generator.printing.folio import Folio
from generator.printing.markdown import plain
from generator.values.filters import shape
from generator.values.value import Value
from runners.core.trace.records import Move, PredictionStep, Run, Stage

NUM_VALUES = 4
_OF_RANK = re.compile(r"rank_(\d+)_(\w+)")
_UNIT_IN_NAME = re.compile(r"^num_|_(?:share|bytes|seconds)$")
_NUMBERED = re.compile(r"([a-z]+)(\d+)")
_GIVES_LAYERS = frozenset({"wrap", "partition", "shard"})  # stages that give ranks their layers
_NOT_AMONG_ALL = ("send", "recv", "barrier")  # or without a payload
Read = partial[Value | None]  # the value of a field of a record, by its keys


def recorded(written: Recorded, field: str, folio: Folio) -> list[View]:
    """A `View` for each row of what a run recorded in `field`, `stages` or `prediction`."""
    run = folio.run(written.run)
    by_name = {record.name: record for record in getattr(run, field)} if run else {}
    rows = []
    for row in written.rows:
        read = partial(folio.reading, written.run, field, row.name)
        view = View(title=folio.line(row.title), note=folio.line(row.note))
        rows.append(_with_record(view, by_name.get(row.name), read, folio))
    return rows


def _with_record(
    row: View, record: Stage | PredictionStep | None, read: Read, folio: Folio
) -> View:
    """A row with what its run recorded, if it did."""
    if record is None:
        return row.copy_with(
            operation="", rank="", shape_in="–", shape_out="–", num_bytes=None, values="", facts=[]
        )
    rank = "each rank" if record.rank is None else f"rank\u00a0{record.rank}"
    operation = record.operation.replace("this rank", rank)
    places = range(min(NUM_VALUES, len(record.values)))
    first = (_rounded(read("values", place), 3, folio) for place in places)
    more = ", …" if len(record.values) > NUM_VALUES else ""
    return row.copy_with(
        operation=operation,
        rank=f"on {rank}" if operation == record.operation else "",
        shape_in=_shape(record.shape_in, read("shape_in", by=shape), folio),
        shape_out=_shape(record.shape_out, read("shape_out", by=shape), folio),
        num_bytes=folio.printed(read("bytes")) if isinstance(record, Stage) else None,
        values=Markup("[{}{}]").format(Markup(", ").join(first), more) if places else "",
        facts=list(_facts(record, read, folio)) if isinstance(record, PredictionStep) else [],
    )


def _shape(sizes: Sequence[int], printed: Value | None, folio: Folio) -> Markup | str:
    return folio.printed(printed) + " values" * (len(sizes) == 1) if sizes else "–"


def _rounded(value: Value | None, digits: int, folio: Folio) -> Markup:
    return folio.printed(value and value.formatted(digits=digits))


def _facts(step: PredictionStep, read: Read, folio: Folio) -> Iterator[tuple[str, Markup]]:
    """Each fact behind its name; those of single ranks, `rank_0_before`, rank after rank."""
    of_ranks: dict[str, list[Markup]] = {}
    for name, fact in sorted(step.facts.items()):
        cell = _fact(fact, partial(read, "facts", name), folio)
        if match := _OF_RANK.fullmatch(name):
            words = Markup('<span class="pb-label">rank {}</span> {}').format(match[1], cell)
            of_ranks.setdefault(match[2], []).append(words)
        else:
            yield _label(name, folio), cell
    for name in sorted(of_ranks, reverse=True):  # before, after
        yield _label(name, folio), Markup("; ").join(of_ranks[name])


def _label(name: str, folio: Folio) -> str:
    """A fact's name in words: those of `ui.yml`, or its own."""
    own = _UNIT_IN_NAME.sub("", name).replace("_", " ").capitalize()
    return str(folio.ui["table"]["facts"].get(name, own))


def _fact(fact: object, read: Read, folio: Folio) -> Markup:
    if isinstance(fact, list):
        parts = (_fact(part, partial(read, place), folio) for place, part in enumerate(fact))
        return Markup(", ").join(parts)
    if isinstance(fact, str):
        return Markup("<code>{}</code>").format(fact)
    return _rounded(read(), 4, folio) if isinstance(fact, float) else folio.printed(read())


# --- stages, drawn


def stages(flow: Recorded, folio: Folio) -> list[View]:
    """A `View` for each of a run's listed stages: its row, its SVG drawing and its transfers."""
    run = folio.run(flow.run)
    by_name = {stage.name: stage for stage in run.stages} if run else {}
    drawn = []
    rows = zip(flow.rows, recorded(flow, "stages", folio), strict=True)
    for number, (written, row) in enumerate(rows, 1):
        stage = View(anchor=f"stage-{written.name.replace('_', '-')}", row=row, drawing="",
                      travelled=[])  # fmt: skip
        if run and (record := by_name.get(written.name)):
            later = {row.name for row in flow.rows[number:]}
            moves = list(_moves(flow.run, written, record, run, folio))
            travels = [travel for travel, _ in moves]
            stage.travelled = list(_travelled(moves, folio))
            ranks = [_lane(rank, record, run, travels) for rank in range(run.world_size)]
            if later & _GIVES_LAYERS:  # the ranks do not hold theirs yet
                ranks = [rank._replace(holds="") for rank in ranks]
            stage.drawing = _drawing(stage, ranks, travels)
        drawn.append(stage)
    return drawn


def _drawing(stage: View, ranks: Sequence[Lane], travels: Sequence[Travel]) -> Markup:
    """The drawing of a stage's ranks and transfers, with a sentence for each."""
    says = [
        f"{rank.label}: {rank.works_on or IDLE}" + (rank.holds and f", {rank.holds}")
        for rank in ranks
    ]
    says += [f"{move.operation} {plain(move.num_bytes)} {move.between}" for move in stage.travelled]
    title = plain(stage.row.title)
    return lanes(ranks, travels).svg(stage.anchor, title, "; ".join(says), "pb-lanes")


def _lane(rank: int, stage: Stage, run: Run, travels: Sequence[Travel]) -> Lane:
    own = (held for held in stage.ranks if held.rank == rank)
    held = next(own, stage if stage.rank in (None, rank) else None)
    shapes = [held.shape_in, held.shape_out] if held else []
    works_on = " → ".join(" × ".join(f"{size:,}" for size in shape) for shape in shapes if shape)
    works_on += " values" * ([len(shape) for shape in shapes[-1:]] == [1])
    if any({travel.source, travel.destination} & {None, rank} for travel in travels):
        works_on = works_on or "takes part"
    return Lane(f"rank {rank}", works_on, _layers(rank, run))


def _layers(rank: int, run: Run) -> str:
    """The layers that a rank holds, in a few words."""
    layers = run.model.layers if run.model else []
    own = [layer for layer in layers if rank in layer.ranks]
    if any(layer.is_sharded for layer in own):
        return "shards"
    if own and len(own) == len(layers):
        return "whole replica" if run.world_size > 1 else "whole model"
    names = list(dict.fromkeys(layer.name for layer in (*own[:1], *own[-1:])))
    ends = [match for name in names if (match := _NUMBERED.fullmatch(name))]
    if len(ends) > 1 and ends[0][1] == ends[1][1]:
        return f"{ends[0][1]}s {ends[0][2]}–{ends[1][2]}"
    return "–".join(names)


def _moves(
    path: str, written: RecordedRow, stage: Stage, run: Run, folio: Folio
) -> Iterator[tuple[Travel, Value | None]]:
    """The operations between ranks, the heaviest first, each with its payload."""
    moves = [
        (move, folio.reading(path, "stages", stage.name, "moves", place, "bytes"))
        for place, move in enumerate(stage.moves)
    ]
    for call in run.ranks[0].collectives if run.ranks and written.whole_step and not moves else ():
        if call.operation not in _NOT_AMONG_ALL:
            payload = folio.reading(path, "ranks", 0, "collectives", call.operation, "bytes")
            moves.append((Move(operation=call.operation, bytes=call.bytes), payload))
    for move, payload in sorted(moves, key=lambda pair: -pair[0].bytes):
        yield Travel(f"{move.operation} {payload}", move.source, move.destination), payload


def _travelled(moves: Sequence[tuple[Travel, Value | None]], folio: Folio) -> Iterator[View]:
    """The same in words; one operation with one payload between several ranks, in one line."""
    for words, same in groupby(moves, key=lambda move: move[0].words):
        alike, operation = list(same), words.partition(" ")[0]
        between = ", ".join(_between(operation, travel) for travel, _ in alike)
        yield View(operation=operation, num_bytes=folio.printed(alike[0][1]), between=between)


def _between(operation: str, travel: Travel) -> str:
    """From which rank to which; the root of a scatter or gather passes itself a share as well."""
    if travel.source is None and travel.destination is None:
        return "among all ranks"
    gives, receives = (
        "every rank" if end is None else f"rank\u00a0{end}"
        for end in (travel.source, travel.destination)
    )
    shared = ", its own share included" if operation in ("scatter", "gather") else ""
    return f"{gives} → {receives}{shared}"
