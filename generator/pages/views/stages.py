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
from generator.content.typesetting import plain
from generator.figures.drawings.lanes import Lane, Travel, lanes
from generator.pages.view import View
from generator.printing.folio import Folio
from generator.values.filters import shape
from generator.values.value import Value
from runners.core.trace.records import Held, Move, PredictionStep, Run, Stage

NUM_VALUES = 4
_OF_RANK = re.compile(r"rank_(\d+)_(\w+)")
_UNIT_IN_NAME = re.compile(r"^num_|_(?:share|bytes|seconds)$")
_NUMBERED = re.compile(r"([a-z]+)(\d+)")
_GIVES_LAYERS = frozenset({"wrap", "partition", "shard"})  # stages that give ranks their layers
_NOT_AMONG_ALL = ("send", "recv", "barrier")  # or without a payload
Read = partial[Value | None]  # the value of a field of a record, by its keys
Moved = tuple[Travel, Value | None]  # what travelled, and its payload


def recorded(written: Recorded, field: str, folio: Folio) -> list[View]:
    """A `View` for each row of what a run recorded in `field`, `stages` or `prediction`."""
    run = folio.run(written.run)
    by_name = {record.name: record for record in getattr(run, field)} if run else {}
    return [
        _row(
            by_name.get(row.name), partial(folio.reading, written.run, field, row.name), row, folio
        )
        for row in written.rows
    ]


def _row(
    record: Stage | PredictionStep | None, read: Read, written: RecordedRow, folio: Folio
) -> View:
    rank, operation = "", record.operation if record else ""
    if record is not None:
        rank = "each rank" if record.rank is None else f"rank\u00a0{record.rank}"
        named = operation.replace("this rank", rank)
        rank, operation = "" if named != operation else f"on {rank}", named
    return View(
        title=folio.line(written.title),
        note=folio.line(written.note),
        operation=operation,
        shape_in=_shape(record.shape_in if record else [], partial(read, "shape_in"), folio),
        shape_out=_shape(record.shape_out if record else [], partial(read, "shape_out"), folio),
        num_bytes=folio.printed(read("bytes")) if isinstance(record, Stage) else None,
        rank=rank,
        values=_values(record.values if record else [], read, folio),
        facts=list(_facts(record, read, folio)) if isinstance(record, PredictionStep) else [],
    )


def _shape(sizes: list[int], read: Read, folio: Folio) -> Markup:
    cell = folio.printed(read(by=shape)) if sizes else Markup("–")
    return cell + " values" if len(sizes) == 1 else cell


def _values(values: Sequence[float], read: Read, folio: Folio) -> Markup:
    places = range(min(NUM_VALUES, len(values)))
    cells = [_rounded(read("values", place), 3, folio) for place in places]
    more = ", …" if len(values) > NUM_VALUES else ""
    return Markup("[{}{}]").format(Markup(", ").join(cells), more) if cells else Markup("")


def _rounded(value: Value | None, digits: int, folio: Folio) -> Markup:
    return folio.printed(value and value.formatted(digits=digits))


def _facts(step: PredictionStep, read: Read, folio: Folio) -> Iterator[tuple[str, Markup]]:
    """Each fact behind its name; those of single ranks, `rank_0_before`, rank after rank."""
    of_ranks: dict[str, list[Markup]] = {}
    for name, fact in sorted(step.facts.items()):
        cell = _fact(partial(read, "facts", name), fact, folio)
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


def _fact(read: Read, fact: object, folio: Folio) -> Markup:
    if isinstance(fact, list):
        parts = [_fact(partial(read, i), element, folio) for i, element in enumerate(fact)]
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
    for written, row in zip(flow.rows, recorded(flow, "stages", folio), strict=True):
        stage = View(anchor=f"stage-{written.name.replace('_', '-')}", row=row, drawing="",
                      travelled=[])  # fmt: skip
        if run and written.name in by_name:
            stage = _with_drawing(stage, flow, written, by_name[written.name], run, folio)
        drawn.append(stage)
    return drawn


def _with_drawing(
    stage: View, flow: Recorded, written: RecordedRow, record: Stage, run: Run, folio: Folio
) -> View:
    """A stage with its drawing, and with what travelled in it."""
    later = {row.name for row in flow.rows[flow.rows.index(written) + 1 :]}
    moves = list(_moves(flow.run, written, record, run, folio))
    travels = [travel for travel, _ in moves]
    rows = [_lane(rank, record, run, travels) for rank in range(run.world_size)]
    if later & _GIVES_LAYERS:  # the ranks do not hold theirs yet
        rows = [row._replace(holds="") for row in rows]
    travelled = list(_travelled(moves, folio))
    idle = "takes no part"
    sentences = [
        f"{row.label}: {', '.join(filter(None, [row.works_on or idle, row.holds]))}" for row in rows
    ]
    sentences += [f"{move.operation} {plain(move.num_bytes)} {move.between}" for move in travelled]
    drawing = lanes(rows, travels, idle).svg(
        stage.anchor, plain(stage.row.title), "; ".join(sentences), "pb-lanes"
    )
    return stage.copy_with(drawing=drawing, travelled=travelled)


def _lane(rank: int, stage: Stage, run: Run, travels: Sequence[Travel]) -> Lane:
    held: Held | Stage | None = next((own for own in stage.ranks if own.rank == rank), None)
    if held is None and stage.rank in (None, rank):
        held = stage
    shapes = [held.shape_in, held.shape_out] if held else []
    sides = [" × ".join(f"{size:,}" for size in shape) for shape in shapes if shape]
    takes_part = any({travel.source, travel.destination} & {None, rank} for travel in travels)
    sizes = " → ".join(sides) + " values" * ([len(shape) for shape in shapes[-1:]] == [1])
    works_on = sizes or ("takes part" if takes_part else "")
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
    path: str, written: RecordedRow, record: Stage, run: Run, folio: Folio
) -> Iterator[Moved]:
    """What travelled, the heaviest first, each with its payload."""
    moves = [
        (move, folio.reading(path, "stages", record.name, "moves", place, "bytes"))
        for place, move in enumerate(record.moves)
    ]
    for call in run.ranks[0].collectives if run.ranks and written.whole_step and not moves else ():
        if call.operation not in _NOT_AMONG_ALL:
            payload = folio.reading(path, "ranks", 0, "collectives", call.operation, "bytes")
            moves.append((Move(operation=call.operation, bytes=call.bytes), payload))
    for move, payload in sorted(moves, key=lambda pair: -pair[0].bytes):
        yield Travel(f"{move.operation} {payload}", move.source, move.destination), payload


def _travelled(moves: Sequence[Moved], folio: Folio) -> Iterator[View]:
    """The same in words; one operation with one payload between several ranks, in one line."""
    for words, alike in groupby(moves, key=lambda move: move[0].words):
        travels, payloads = zip(*alike, strict=True)
        operation, _, _ = words.partition(" ")
        between = ", ".join(_between(operation, travel) for travel in travels)
        yield View(operation=operation, num_bytes=folio.printed(payloads[0]), between=between)


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
