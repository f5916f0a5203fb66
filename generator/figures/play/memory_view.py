"""Peak memory of each rank by class of tensors, as bars under a budget line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from generator.content.exhibit import Figure
from generator.evidence.folio import Folio
from generator.evidence.play_states import ShownRun, State
from generator.evidence.value import numeric
from generator.figures.drawings.stacks import Part, Stack, stacks
from generator.figures.play.seen import Seen, both, byte_unit, in_lines, on_one_device, said_bytes
from runners.traces.measured import Memory
from runners.traces.records import RankRecord

CLASSES = ("parameters", "gradients", "optimizer", "activations", "buckets", "buffers")


def memory(states: Sequence[State], figure: Figure, folio: Folio) -> list[Seen]:
    """The bars of each state under the line that readers move: a rank each, parts by class.

    All states have the axis of the largest peak.
    """
    peaks = [peak for state in states for one in state.runs for peak in _peaks(one)]
    if not peaks or not all(any(map(_peaks, state.runs)) for state in states):
        return []
    assert figure.play is not None
    assert figure.play.budget is not None
    largest = max(held.peak_bytes or 0 for _, held, _ in peaks)
    budget = folio.value(figure.play.budget)
    start = numeric(budget) if budget else largest
    unit, size = byte_unit(largest)
    top, words = max(largest, start) * 1.05 / size, folio.ui["play"]
    names = [words["classes"][name] for name in CLASSES]
    is_one = on_one_device(states)
    title = unit if is_one else f"{unit} {folio.ui['figure']['per_rank']}"
    found = []
    for state in states:
        rows = [row for one in state.runs for row in _rows(one, size, folio)]
        drawings = both(stacks, rows, names, words["unseen"], title, top, start / size)
        says = "; ".join(f"{row.label}: {row.words}" for row in rows)
        cells = tuple(_cells(one, folio) for one in state.runs)
        found.append(Seen(drawings, says, cells, "one_device" if is_one else ""))
    return found


def _cells(one: ShownRun, folio: Folio) -> dict[str, Markup]:
    """What the fullest rank held at its peak, by class."""
    peaks = _peaks(one)
    if not peaks:
        return {}
    at, fullest, _ = max(peaks, key=lambda peak: peak[1].peak_bytes or 0)
    words, path = folio.ui["play"]["classes"], f"{one.path}.ranks[{at}].memory.at_peak"
    held = {
        words[name]: folio.cell(f"{path}.{name}_bytes")
        for name in CLASSES
        if getattr(fullest.at_peak, f"{name}_bytes")
    }
    return in_lines(folio.ui["plan"]["held"], held)


def _peaks(one: ShownRun) -> list[tuple[int, Memory, RankRecord]]:
    """The position of each rank whose peak is known by class, its memory, and its record."""
    return [
        (position, record.memory, record)
        for position, record in enumerate(one.run.ranks)
        if record.memory and record.memory.at_peak and record.memory.peak_bytes
    ]


def _rows(one: ShownRun, size: float, folio: Folio) -> list[Stack]:
    words, rank_word = folio.ui["play"]["classes"], folio.ui["figure"]["rank"]
    rows: list[Stack] = []
    for _, peak, record in _peaks(one):
        name = f"{rank_word} {record.rank}" if len(one.run.ranks) > 1 else ""
        label = " · ".join(filter(None, (one.label if not rows else "", name))) or rank_word
        spoken = " · ".join(filter(None, (one.label, name))) or rank_word
        held = {name: getattr(peak.at_peak, f"{name}_bytes") for name in CLASSES}
        parts = tuple(
            Part(kind, words[name], number / size, f"{spoken}, {words[name]}: {said_bytes(number)}")
            for kind, (name, number) in enumerate(held.items())
            if number
        )
        limits = _limits(record.measures, size)
        rows.append(Stack(one.path, label, parts, said_bytes(peak.peak_bytes or 0), limits))
    return rows


def _limits(measures: Mapping[str, object], size: float) -> tuple[float, float] | None:
    """Of a plan: the memory of a device with which a rank fits, and below which it cannot."""
    found = [measures.get(name) for name in ("needed_bytes", "least_bytes")]
    first, second = (one / size if isinstance(one, int) else None for one in found)
    return None if first is None or second is None else (first, second)
