"""Trace: what a run recorded step by step, in a table, and of stages also a diagram of the ranks.

Flow: an author's rows and the run they name → for each row shapes, values and facts as the recorder
read them off the tensors; of a stage also what travelled, and the drawing of `drawings/lanes.py`.
Whatever is drawn also stands in words, each number with its provenance.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import groupby
from string import digits as decimals
from typing import NamedTuple

from markupsafe import Markup, escape

from proofbook.generator.kinds.figures.drawings.lanes import IDLE, Lane, Travel, lanes
from proofbook.generator.kinds.lessons import parts
from proofbook.generator.kinds.lessons.words import Recorded, RecordedRow, TraceFile
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements.element import Block, Drawing, Element, Facts, Fold
from proofbook.generator.pages.elements.tables import Table
from proofbook.generator.printing.folio import Folio
from proofbook.generator.printing.markdown import Text, plain
from proofbook.generator.values.filters import shape
from proofbook.generator.values.value import Value
from proofbook.runners.core.trace.records import Move, PredictionStep, Run, Stage

NUM_VALUES = 4
DASH = Markup("–")
_OF_RANK = re.compile(r"rank_(\d+)_(\w+)")
_UNITS = "_share", "_bytes", "_seconds"  # that names of facts end in
_GIVES_LAYERS = frozenset({"wrap", "partition", "shard"})  # stages that give ranks their layers
_NOT_AMONG_ALL = ("send", "recv", "barrier")  # or without a payload
Read = partial[Value | None]  # the value of a field of a record, by its keys


class RecordedStep(NamedTuple):
    """A stage, or a step of a prediction, as a run recorded it."""

    title: Markup
    note: Text
    operation: Markup  # and which rank recorded it
    shape_in: Markup = DASH
    shape_out: Markup = DASH  # with its bytes, of a stage
    facts: Sequence[tuple[Markup, Markup]] = ()  # first values, and those of a step


@dataclass(frozen=True)
class PredictionTable(Table):
    """The steps of a prediction; the last cell of each, its note and its values, is below it."""


def trace(draft: Draft) -> Iterator[Element | Markup]:
    """The page of one training and one prediction, as runs recorded them."""
    lesson, folio = draft.lesson(TraceFile), draft.folio
    if lesson.data_flow:
        yield from draft.passage("Data flow, stage by stage", lesson.data_flow.introduction)
        yield Block([*_stages(lesson.data_flow, draft)])  # opening a stage closes the others
    yield from parts.sections(draft, lesson.more, 2)
    if lesson.training:
        yield from draft.passage("The training curve", lesson.training.introduction)
        yield from parts.figure(draft, lesson.training.figure)
        yield from (Block([text]) for text in draft.texts(lesson.training.afterword))
    if lesson.prediction:
        title = folio.line(lesson.prediction.title or "Prediction, layer by layer")
        yield from draft.passage(title, lesson.prediction.introduction)
        table = _prediction(lesson.prediction, folio)
        yield Fold(escape("Each operation with its numbers"), [table], is_found=True)
    yield from parts.self_checks(draft, lesson.checks, "Questions")
    yield draft.heading(2, "Key insight")
    yield from parts.item(draft, lesson.commit, "commit")
    yield draft.waiting(lesson.commit, "the key insight", [draft.insight(lesson.takeaway)])


def _prediction(written: Recorded, folio: Folio) -> PredictionTable:
    rows = []
    for number, step in enumerate(_recorded(written, "prediction", folio), 1):
        line = Markup("<br>{}: {}")
        below = Markup().join(line.format(*fact) if fact[0] else fact[1] for fact in step.facts)
        title = Markup('<span class="pb-label">{}</span> {}').format(number, step.title)
        rows.append([title, step.shape_in, step.operation, step.shape_out, step.note + below])
    return PredictionTable(["Step", "In", "Operation", "Out", "Note"], rows)


def _recorded(written: Recorded, field: str, folio: Folio) -> Iterator[RecordedStep]:
    """Each row of what a run recorded in `field`, `stages` or `prediction`."""
    run = folio.run(written.run)
    records = {record.name: record for record in getattr(run, field)} if run else {}
    for row in written.rows:
        title, note = folio.line(row.title), folio.line(row.note)
        operation = Markup('{} <span class="pb-said">· recorded {}</span>')
        record = records.get(row.name)
        if record is None:
            yield RecordedStep(title, note, operation.format("", ""))
            continue
        read = partial(folio.reading, written.run, field, row.name)
        rank = "each rank" if record.rank is None else f"rank\u00a0{record.rank}"
        says = record.operation.replace("this rank", rank)
        operation = operation.format(says, f"on {rank}" if says == record.operation else "")
        shape_in = _shape(record.shape_in, read("shape_in", by=shape), folio)
        shape_out = _shape(record.shape_out, read("shape_out", by=shape), folio)
        if isinstance(record, Stage):
            shape_out += ", " + folio.printed(read("bytes"))
        facts = [*_facts(record, read, folio)]
        yield RecordedStep(title, note, operation, shape_in, shape_out, facts)


def _shape(sizes: Sequence[int], printed: Value | None, folio: Folio) -> Markup:
    return folio.printed(printed) + " values" * (len(sizes) == 1) if sizes else DASH


def _rounded(value: Value | None, digits: int, folio: Folio) -> Markup:
    return folio.printed(value and value.formatted(digits=digits))


def _facts(
    record: Stage | PredictionStep, read: Read, folio: Folio
) -> Iterator[tuple[Markup, Markup]]:
    """The first values, and each fact behind its name; `rank_0_before` stands rank after rank."""
    values = Markup('<span class="pb-values">{}</span>')
    if record.values:
        places = range(min(NUM_VALUES, len(record.values)))
        first = Markup(", ").join(_rounded(read("values", place), 3, folio) for place in places)
        more = ", …" if len(record.values) > NUM_VALUES else ""
        yield Markup("First values"), values.format(Markup("[{}{}]").format(first, more))
    of_ranks: dict[str, list[tuple[str, object, Read]]] = {}
    for name, fact in sorted(record.facts.items()) if isinstance(record, PredictionStep) else ():
        own = partial(read, "facts", name)
        if match := _OF_RANK.fullmatch(name):
            of_ranks.setdefault(match[2], []).append((match[1], fact, own))
        else:
            yield _label(name, folio), values.format(_fact(fact, own, folio))
    if of_ranks:
        yield Markup(), _matrix(of_ranks, folio)


def _matrix(of_ranks: dict[str, list[tuple[str, object, Read]]], folio: Folio) -> Markup:
    """The facts of ranks, a row each; where all ranks have the same, a single row."""
    facts = [fact for own in of_ranks.values() for _, fact, _ in own]
    width = 1 + max(len(fact) if isinstance(fact, list) else 1 for fact in facts)
    head = Markup(f'<tr><th scope="rowgroup" colspan="{width}">{{}}</th></tr>')
    row = Markup('<tr><th scope="row" class="pb-label">{}</th>{}</tr>')
    rows = []
    for name in sorted(of_ranks, reverse=True):  # before, after
        rows.append(head.format(_label(name, folio)))
        own = of_ranks[name]
        is_alike = len(own) > 1 and all(fact == own[0][1] for _, fact, _ in own)
        for rank, fact, read in own[:1] if is_alike else own:
            parts = fact if isinstance(fact, list) else [fact]
            reads = [partial(read, at) for at in range(len(parts))] if parts is fact else [read]
            cells = Markup().join(
                Markup("<td>{}</td>").format(_fact(part, each, folio))
                for part, each in zip(parts, reads, strict=True)
            )
            rows.append(row.format("every rank" if is_alike else f"rank {rank}", cells))
    return Markup('<table class="pb-matrix">{}</table>').format(Markup().join(rows))


def _label(name: str, folio: Folio) -> Markup:
    """A fact's name in words: those of `ui.yml`, or its own."""
    own = reduce(str.removesuffix, _UNITS, name.removeprefix("num_"))
    known = folio.ui["table"]["facts"]
    return escape(known.get(name, own.replace("_", " ").capitalize()))


def _fact(fact: object, read: Read, folio: Folio) -> Markup:
    if isinstance(fact, list):
        parts = (_fact(part, partial(read, place), folio) for place, part in enumerate(fact))
        return Markup(", ").join(parts)
    if isinstance(fact, str):
        return Markup("<code>{}</code>").format(fact)
    return _rounded(read(), 4, folio) if isinstance(fact, float) else folio.printed(read())


# --- stages, drawn


def _stages(flow: Recorded, draft: Draft) -> Iterator[Fold]:
    """Each of a run's listed stages, with its drawing and its transfers if the run recorded it."""
    run = draft.folio.run(flow.run)
    records = {stage.name: stage for stage in run.stages} if run else {}
    steps = list(_recorded(flow, "stages", draft.folio))
    for number, (row, step) in enumerate(zip(flow.rows, steps, strict=True), 1):
        anchor, title = f"stage-{row.name.replace('_', '-')}", plain(step.title)
        sides, transfers = [], list[Markup]()
        if run and row.name in records:
            record, later = records[row.name], {after.name for after in flow.rows[number:]}
            moves = list(_moves(flow.run, row, record, run, draft.folio))
            travels, transfers = [travel for travel, _ in moves], [*_travelled(moves, draft.folio)]
            ranks = [_lane(rank, record, run, travels) for rank in range(run.world_size)]
            if later & _GIVES_LAYERS:  # the ranks do not hold theirs yet
                ranks = [rank._replace(holds="") for rank in ranks]
            works = ((rank.label, rank.works_on or IDLE, rank.holds) for rank in ranks)
            says = [f"{rank}: {', '.join(filter(None, own))}" for rank, *own in works]
            words = "; ".join([*says, *map(plain, transfers)])
            svg = lanes(ranks, travels).svg(anchor, title, words, "pb-lanes")
            sides.append(Block([Drawing(svg)]))
        cells = {"Operation": step.operation, "In": step.shape_in, "Out": step.shape_out}
        facts = [*((Markup(name), cell) for name, cell in cells.items()), *step.facts]
        payload = [(Markup("Payload"), transfers)] if transfers else []
        note = Block([draft.links.linked(step.note)], tag="p")
        sides.append(Block([note, Facts([*facts, *payload])], "pb-told"))
        summary = Markup('<span class="pb-label">{}</span> {}').format(number, title)
        yield Fold(
            summary, [Block(sides, "pb-stage-sides")], "pb-stage", anchor=anchor, group="stages",
            is_open=number == 1, is_found=True,
        )  # fmt: skip


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
    stems = {name.rstrip(decimals) for name in names}
    if len(names) > len(stems):
        stem = stems.pop()
        return f"{stem}s {'–'.join(name.removeprefix(stem) for name in names)}"
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


def _travelled(moves: Sequence[tuple[Travel, Value | None]], folio: Folio) -> Iterator[Markup]:
    """The same in words; one operation with one payload between several ranks, in one line."""
    for words, same in groupby(moves, key=lambda move: move[0].words):
        alike, operation = list(same), words.partition(" ")[0]
        between = ", ".join(_between(operation, travel) for travel, _ in alike)
        payload = folio.printed(alike[0][1])
        yield Markup("<code>{}</code> {} {}").format(operation, payload, between)


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
