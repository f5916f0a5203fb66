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

CLASSES = ("parameters", "gradients", "optimizer", "activations", "buckets", "buffers")


def memory(states: Sequence[State], figure: Figure, folio: Folio) -> list[Seen]:
    """The bars of each state: a rank each, parts by class, all on the axis of the largest peak."""
    most = [peak for state in states for one in state.runs for _, peak in _peaks(one)]
    if not most:
        return []
    assert figure.play is not None
    assert figure.play.budget is not None
    largest = max(one.peak_bytes or 0 for one in most)
    budget = folio.value(figure.play.budget)
    start = numeric(budget) if budget else largest
    unit, size = byte_unit(largest)
    top = max(largest, start) * 1.05 / size
    words = folio.ui["play"]
    names = [words["classes"][name] for name in CLASSES]
    is_one = on_one_device(states)
    title = unit if is_one else f"{unit} {folio.ui['figure']['per_rank']}"
    found = []
    for state in states:
        rows = [row for one in state.runs for row in _rows(one, size, folio)]
        if not rows:
            return []
        found.append(
            Seen(
                both(stacks, rows, names, words["unseen"], title, top, start / size),
                "; ".join(f"{row.label}: {row.words}" for row in rows),
                tuple(_cells(one, folio) if _peaks(one) else {} for one in state.runs),
                "one_device" if is_one else "",
            )
        )
    return found


def _peaks(one: ShownRun) -> list[tuple[int, Memory]]:
    return [
        (record.rank, record.memory)
        for record in one.run.ranks
        if record.memory and record.memory.at_peak and record.memory.peak_bytes
    ]


def _rows(one: ShownRun, size: int, folio: Folio) -> list[Stack]:
    rank_word = folio.ui["figure"]["rank"]
    rows: list[Stack] = []
    measures = {record.rank: record.measures for record in one.run.ranks}
    for rank, peak in _peaks(one):
        name = f"{rank_word} {rank}" if len(one.run.ranks) > 1 else ""
        label = " · ".join(filter(None, (one.label if not rows else "", name))) or rank_word
        spoken = " · ".join(filter(None, (one.label, name)))
        parts = tuple(
            Part(kind, word, held / size, f"{spoken or rank_word}, {word}: {said_bytes(held)}")
            for kind, (word, held) in enumerate(_held(peak, folio).items())
            if held
        )
        limits = _limits(measures[rank], size)
        rows.append(Stack(one.path, label, parts, said_bytes(peak.peak_bytes or 0), limits))
    return rows


def _limits(measures: Mapping[str, object], size: int) -> tuple[float, float] | None:
    """Of a plan: the memory of a device with which a rank fits, and below which it cannot."""
    found = [measures.get(name) for name in ("needed_bytes", "least_bytes")]
    first, second = (one / size if isinstance(one, int) else None for one in found)
    return None if first is None or second is None else (first, second)


def _held(peak: Memory, folio: Folio) -> dict[str, int]:
    words = folio.ui["play"]["classes"]
    return {words[name]: getattr(peak.at_peak, f"{name}_bytes") for name in CLASSES}


def _cells(one: ShownRun, folio: Folio) -> dict[str, Markup]:
    """What the rank with the largest peak held then."""
    peaks = [(position, record.memory) for position, record in enumerate(one.run.ranks)]
    known = [(n, peak) for n, peak in peaks if peak and peak.at_peak and peak.peak_bytes]
    at, largest = max(known, key=lambda pair: pair[1].peak_bytes or 0)
    words = folio.ui["play"]["classes"]
    held = {
        words[name]: folio.cell(f"{one.path}.ranks[{at}].memory.at_peak.{name}_bytes")
        for name in CLASSES
        if getattr(largest.at_peak, f"{name}_bytes")
    }
    return in_lines(folio.ui["plan"]["held"], held)
