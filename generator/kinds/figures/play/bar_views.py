"""Bars: what ranks hold at their peak by class of tensors, and what they send."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter

from markupsafe import Markup

from proofbook.generator.content.exhibit import Figure
from proofbook.generator.kinds.figures.axes import AxisMark
from proofbook.generator.kinds.figures.drawings.stacks import BarPart, Stack, stacks
from proofbook.generator.kinds.figures.picture import Budget, DrawnState, byte_unit, printed_bytes
from proofbook.generator.kinds.figures.placement_figure import sent_bytes
from proofbook.generator.kinds.figures.play.states import LabelledRun, PlayState
from proofbook.generator.kinds.figures.step_rules import number
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values.value import Value, numeric
from proofbook.runners.core.trace.records import RankRecord

CLASSES = ("parameters", "gradients", "optimizer", "activations", "buckets", "buffers")


def _joined(*words: str) -> str:
    return " · ".join(filter(None, words))


def _parts(label: str, held: Mapping[str, float], size: float, folio: Folio) -> list[BarPart]:
    """The parts of a bar, from their bytes by class."""
    words = folio.ui["play"]["classes"]
    return [
        BarPart(kind, words[kind], num / size, f"{label}, {words[kind]}: {printed_bytes(num)}")
        for kind, num in held.items()
        if num > 0
    ]


def _described(rows: Iterable[Stack]) -> str:
    return "; ".join(f"{row.label}: {row.words}" for row in rows)


# --- what ranks hold


def memory(states: Sequence[PlayState], figure: Figure, folio: Folio) -> Iterator[DrawnState]:
    """Yield each state drawn: bars of each rank's peak bytes by class, and a budget line to move.

    All states have the axis of the largest peak; none is drawn if one has no peak.
    """
    runs = [labelled for state in states for labelled in state.runs]
    peaks = [peak for labelled in runs for peak, _ in _peaks(labelled)]
    if not all(any(map(_peaks, state.runs)) for state in states):
        return
    assert figure.play is not None
    assert figure.play.budget is not None
    budget = folio.value(figure.play.budget)
    unit, size = byte_unit(max(peaks))
    start = (numeric(budget) if budget else max(peaks)) / size
    top = max(max(peaks) / size, start) * 1.05
    step = 10.0 ** math.floor(math.log10(top / 100))
    begin = round(start, 3)
    low = round(begin % step, 3)  # from which steps lead to `begin`
    moved = Budget(begin, low, round(top, 3), step, unit, folio.show(budget)) if budget else None
    is_one = all(
        labelled.run.world_size == 1 and labelled.run.nature == "real" for labelled in runs
    )
    title = unit if is_one else f"{unit} per rank"
    for state in states:
        rows = [row for labelled in state.runs for row in _rows(labelled, size, start, folio)]
        draw = partial(stacks, rows, title, top, budget=AxisMark(start))
        cells = {labelled.path: _peak_cells(labelled, folio) for labelled in state.runs}
        word = "one_device" if is_one else ""
        yield DrawnState(draw, _described(rows), cells, word, budget=moved)


def _peaks(labelled: LabelledRun) -> list[tuple[int, RankRecord]]:
    """The peak bytes and the record of each rank whose peak is known by class."""
    return [
        (held.peak_bytes, rank)
        for rank in labelled.run.ranks
        if (held := rank.memory) and held.at_peak and held.peak_bytes
    ]


def _by_class(rank: RankRecord) -> dict[str, float]:
    at_peak = rank.memory and rank.memory.at_peak
    return {name: getattr(at_peak, f"{name}_bytes") for name in CLASSES}


def _rows(labelled: LabelledRun, size: float, start: float, folio: Folio) -> Iterator[Stack]:
    words = folio.ui["playing"]
    for place, (peak, record) in enumerate(_peaks(labelled)):
        name = f"rank {record.rank}" if len(labelled.run.ranks) > 1 else ""
        label = _joined(labelled.label if not place else "", name) or "rank"
        parts = _parts(_joined(labelled.label, name) or "rank", _by_class(record), size, folio)
        # of a plan: the memory of a device with which a rank fits, and below which it cannot
        need, least = (
            number(record.measures.get(name, peak)) / size
            for name in ("needed_bytes", "least_bytes")
        )
        ending = "fits" if need <= start else "over" if least > start else "marginal"
        says, is_over = printed_bytes(peak), ending == "over"
        yield Stack(labelled.path, label, parts, says, (need, least), is_over, words[ending])


def _peak_cells(labelled: LabelledRun, folio: Folio) -> dict[str, Markup]:
    """What the fullest rank held at its peak, by class."""
    peaks = _peaks(labelled)
    if not peaks:
        return {}
    _, fullest = max(peaks, key=itemgetter(0))
    words = folio.ui["play"]["classes"]
    at = "ranks", labelled.run.ranks.index(fullest), "memory", "at_peak"
    return {
        words[name].capitalize(): folio.printed(folio.reading(labelled.path, *at, f"{name}_bytes"))
        for name, number in _by_class(fullest).items()
        if number
    }


# --- what ranks send


def sent(states: Sequence[PlayState], _: Figure, folio: Folio) -> Iterator[DrawnState]:
    """Yield each state drawn: a bar a run, of bytes per step by operation, of the top sender."""
    runs = [labelled for state in states for labelled in state.runs]
    sent_by = {labelled.path: _most_sent(labelled, folio) for labelled in runs}
    most = max(map(_total, sent_by.values()))
    unit, size = byte_unit(most)
    for state in states:
        rows = [_bar(labelled, sent_by[labelled.path], size) for labelled in state.runs]
        draw = partial(stacks, rows, f"{unit} per step", most * 1.05 / size or 1)
        cells = {
            path: {f"Sent by {name}": folio.show(value) for name, value in sent_by[path].items()}
            for path in (labelled.path for labelled in state.runs)
        }
        yield DrawnState(draw, _described(rows), cells)


def _most_sent(labelled: LabelledRun, folio: Folio) -> dict[str, Value]:
    """By operation, the bytes that the rank with the most sends."""
    places = range(len(labelled.run.ranks))
    sent_by_rank = [sent_bytes(labelled.path, labelled.run, place, folio) for place in places]
    return max(sent_by_rank, key=_total)


def _total(sent_by: Mapping[str, Value]) -> float:
    return sum(float(numeric(value)) for value in sent_by.values())


def _bar(labelled: LabelledRun, sent_by: Mapping[str, Value], size: float) -> Stack:
    numbers = {name: float(numeric(value)) for name, value in sent_by.items()}
    words = printed_bytes(sum(numbers.values())) if numbers else "nothing sent"
    parts = [
        BarPart(name, name.replace("_", "-"), number / size, f"{name}: {printed_bytes(number)}")
        for name, number in numbers.items()
    ]
    return Stack(labelled.path, labelled.label, parts, words)
