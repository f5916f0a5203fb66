"""Trace: what a run recorded step by step, in a table, and of stages also a diagram of the ranks.

Flow: an author's rows and the run they name → for each row shapes, values and facts as the recorder
read them off the tensors; of a stage also what travelled, and the drawing of `drawings/lanes.py`.
Whatever is drawn also stands in words, each number with its provenance.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from markupsafe import Markup, escape

from generator.content.lesson import Recorded, RecordedRow, TraceFile
from generator.content.typesetting import plain
from generator.figures.drawings.lanes import Lane, Travel, lanes
from generator.pages.draft import Draft
from generator.pages.elements.element import Block, Content, Drawing, Element, Fold
from generator.printing.folio import Folio
from runners.core.trace.records import Held, Move, PredictionStep, Run, Stage

NUM_VALUES = 4
_OF_RANK = re.compile(r"rank_(\d+)_(\w+)")
_UNIT_IN_NAME = re.compile(r"^num_|_(?:share|bytes|seconds)$")
_NUMBERED = re.compile(r"([a-z]+)(\d+)")
_GIVES_LAYERS = frozenset({"wrap", "partition", "shard"})  # stages that give ranks their layers
_NOT_AMONG_ALL = ("send", "recv", "barrier")  # or without a payload


class RecordedStep(NamedTuple):
    """A stage, or a step of a prediction, as a run recorded it."""

    title: Markup
    note: Markup
    operation: Markup  # and which rank recorded it
    shape_in: Markup
    shape_out: Markup  # with its bytes, of a stage
    values: Markup
    facts: Sequence[tuple[Markup, Markup]]  # of a step of a prediction


class RecordedFact(NamedTuple):
    """A fact of a stage: its name, and what was recorded."""

    name: Markup
    values: Content
    css: str = ""  # of each of these


@dataclass(frozen=True)
class RecordedFacts(Element):
    """Facts of a stage, each behind its name."""

    facts: Sequence[RecordedFact]


@dataclass(frozen=True)
class PredictionTable(Element):
    """The steps of a prediction, each with a note and its values below it."""

    steps: Sequence[RecordedStep]


def trace(draft: Draft) -> Iterator[Element | Markup]:
    """The page of one training and one prediction, as runs recorded them."""
    lesson, folio = draft.lesson(TraceFile), draft.folio
    yield draft.lede(lesson.introduction)
    if lesson.data_flow:
        yield from draft.passage("Data flow, stage by stage", lesson.data_flow.introduction)
        yield Block([*_stages(lesson.data_flow, draft)])  # opening a stage closes the others
    if lesson.training:
        yield from draft.passage("The training curve", lesson.training.introduction)
        yield from draft.figure(lesson.training.figure)
        if lesson.training.afterword:
            asked = lesson.commit if lesson.answered_by == "afterword" else None
            yield from draft.item(asked, "commit")
            words = draft.prose(lesson.training.afterword)
            yield draft.waiting(asked, "what the epochs show", [words])
    if lesson.prediction:
        title = folio.line(lesson.prediction.title or "Prediction, layer by layer")
        yield from draft.passage(title, lesson.prediction.introduction)
        yield PredictionTable(_recorded(lesson.prediction, "prediction", folio))
    yield from draft.sections(lesson.more, 2)
    yield from draft.checks(lesson.checks, "Questions")
    yield draft.heading(2, "Key insight")
    asked = lesson.commit if lesson.answered_by == "takeaway" else None
    yield from draft.item(asked, "commit")
    yield draft.waiting(asked, "the key insight", [draft.insight(lesson.takeaway)])


def _recorded(written: Recorded, field: str, folio: Folio) -> list[RecordedStep]:
    """Each row of what a run recorded in `field`, `stages` or `prediction`."""
    run = folio.run(written.run)
    by_name = {record.name: record for record in getattr(run, field)} if run else {}
    base = f"{written.run}.{field}"
    return [
        _row(by_name.get(row.name), f"{base}['{row.name}']", row, folio) for row in written.rows
    ]


def _row(
    record: Stage | PredictionStep | None, base: str, written: RecordedRow, folio: Folio
) -> RecordedStep:
    rank, operation = "", record.operation if record else ""
    if record is not None:
        rank = "each rank" if record.rank is None else f"rank\u00a0{record.rank}"
        named = operation.replace("this rank", rank)
        rank, operation = "" if named != operation else f"on {rank}", named
    recorded = Markup('{} <span class="pb-said">· recorded {}</span>').format(operation, rank)
    shape_out = _shape(record.shape_out if record else [], f"{base}.shape_out", folio)
    if isinstance(record, Stage):
        shape_out += ", " + folio.cell(f"{base}.bytes")
    return RecordedStep(
        title=folio.line(written.title),
        note=folio.line(written.note),
        operation=recorded,
        shape_in=_shape(record.shape_in if record else [], f"{base}.shape_in", folio),
        shape_out=shape_out,
        values=_values(record.values if record else [], base, folio),
        facts=list(_facts(record, base, folio)) if isinstance(record, PredictionStep) else [],
    )


def _shape(shape: list[int], expression: str, folio: Folio) -> Markup:
    cell = folio.cell(f"{expression} | shape") if shape else Markup("–")
    return cell + " values" if len(shape) == 1 else cell


def _values(values: Sequence[float], base: str, folio: Folio) -> Markup:
    places = range(min(NUM_VALUES, len(values)))
    cells = [folio.cell(f"{base}.values[{place}] | digits(3)") for place in places]
    more = ", …" if len(values) > NUM_VALUES else ""
    return Markup("[{}{}]").format(Markup(", ").join(cells), more) if cells else Markup("")


def _facts(step: PredictionStep, base: str, folio: Folio) -> Iterator[tuple[Markup, Markup]]:
    """Each fact behind its name; those of single ranks, `rank_0_before`, rank after rank."""
    of_ranks: dict[str, list[Markup]] = {}
    for name, fact in sorted(step.facts.items()):
        cell = _fact(f"{base}.facts.{name}", fact, folio)
        if match := _OF_RANK.fullmatch(name):
            words = Markup('<span class="pb-label">rank {}</span> {}').format(match[1], cell)
            of_ranks.setdefault(match[2], []).append(words)
        else:
            yield _label(name, folio), cell
    for name in sorted(of_ranks, reverse=True):  # before, after
        yield _label(name, folio), Markup("; ").join(of_ranks[name])


def _label(name: str, folio: Folio) -> Markup:
    """A fact's name in words: those of `ui.yml`, or its own."""
    own = _UNIT_IN_NAME.sub("", name).replace("_", " ").capitalize()
    return escape(folio.ui["table"]["facts"].get(name, own))


def _fact(expression: str, fact: object, folio: Folio) -> Markup:
    if isinstance(fact, list):
        parts = [_fact(f"{expression}[{i}]", element, folio) for i, element in enumerate(fact)]
        return Markup(", ").join(parts)
    if isinstance(fact, str):
        return Markup("<code>{}</code>").format(fact)
    return folio.cell(f"{expression} | digits(4)" if isinstance(fact, float) else expression)


# --- stages, drawn


def _stages(flow: Recorded, draft: Draft) -> Iterator[Fold]:
    """Each of a run's listed stages, with its drawing and its transfers if the run recorded it."""
    run = draft.folio.run(flow.run)
    by_name = {stage.name: stage for stage in run.stages} if run else {}
    steps = _recorded(flow, "stages", draft.folio)
    for number, (written, step) in enumerate(zip(flow.rows, steps, strict=True), 1):
        anchor = f"stage-{written.name.replace('_', '-')}"
        facts = [
            RecordedFact(Markup("Operation"), [step.operation]),
            RecordedFact(Markup("In"), [step.shape_in]),
            RecordedFact(Markup("Out"), [step.shape_out]),
        ]
        if step.values:
            facts.append(RecordedFact(Markup("First values"), [step.values], "pb-values"))
        sides: list[Block] = []
        if run and written.name in by_name:
            record, later = by_name[written.name], {row.name for row in flow.rows[number:]}
            moves = list(_moves(flow.run, written, record, run, draft.folio))
            travels, transfers = [travel for travel, _ in moves], [*_travelled(moves, draft.folio)]
            ranks = [_lane(rank, record, run, travels) for rank in range(run.world_size)]
            if later & _GIVES_LAYERS:  # the ranks do not hold theirs yet
                ranks = [rank._replace(holds="") for rank in ranks]
            if transfers:
                facts.append(RecordedFact(Markup("Payload"), transfers))
            svg = _drawing(anchor, plain(step.title), ranks, travels, transfers)
            sides.append(Block([Drawing(svg)]))
        note = Block([draft.links.linked(step.note)], tag="p")
        sides.append(Block([note, RecordedFacts(facts)], "pb-told"))
        summary = Markup('<span class="pb-label">{}</span> {}').format(number, plain(step.title))
        yield Fold(
            summary, [Block(sides, "pb-stage-sides")], "pb-stage", anchor=anchor, group="stages",
            is_open=number == 1,
        )  # fmt: skip


def _drawing(
    anchor: str, title: str, ranks: Sequence[Lane], travels: Sequence[Travel],
    transfers: Sequence[Markup],
) -> Markup:  # fmt: skip
    """The diagram of a stage, with a sentence for each rank and each transfer."""
    idle = "takes no part"
    sentences = [
        f"{rank.label}: {', '.join(filter(None, [rank.works_on or idle, rank.holds]))}"
        for rank in ranks
    ]
    says = "; ".join([*sentences, *map(plain, transfers)])
    return lanes(ranks, travels, idle).svg(anchor, title, says, "pb-lanes")


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
) -> Iterator[tuple[Travel, str]]:
    """What travelled, the heaviest first, each with the expression of its payload."""
    base, first = f"{path}.stages['{record.name}'].moves", f"{path}.ranks[0].collectives"
    moves = [(move, f"{base}[{place}].bytes") for place, move in enumerate(record.moves)]
    if written.whole_step and not moves and run.ranks:
        moves = [
            (
                Move(operation=collective.operation, bytes=collective.bytes),
                f"{first}['{collective.operation}'].bytes",
            )
            for collective in run.ranks[0].collectives
            if collective.operation not in _NOT_AMONG_ALL
        ]
    for move, expression in sorted(moves, key=lambda move: -move[0].bytes):
        words = f"{move.operation} {folio.value(expression)}"
        yield Travel(words, move.source, move.destination), expression


def _travelled(moves: Sequence[tuple[Travel, str]], folio: Folio) -> Iterator[Markup]:
    """The same in words; one operation with one payload between several ranks, in one line."""
    for words, alike in groupby(moves, key=lambda move: move[0].words):
        travels, expressions = zip(*alike, strict=True)
        operation, _, _ = words.partition(" ")
        between = ", ".join(_between(operation, travel) for travel in travels)
        payload = folio.cell(expressions[0])
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
