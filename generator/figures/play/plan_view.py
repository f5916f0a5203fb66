"""The layouts of a plan as bars under a device's memory: what the fullest rank of each needs.

In: simulated runs with their names. Out: a bar for each, of the rank with the highest demand: what
it holds at its peak by class, what CUDA's allocator would reserve beyond, and what the device needs
beside both. So a layout fits where its bar ends before the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from generator.evidence.folio import Folio
from generator.figures.drawings.stacks import Part, Stack, stacks
from generator.figures.play.memory_view import CLASSES
from generator.figures.play.seen import Seen, both, byte_unit, said_bytes
from runners.traces.device_memory import Verdict
from runners.traces.records import RankRecord, Run

MOST = 2.2  # memories of a device that the axis reaches to: a longer bar is cut
PARTS = (*CLASSES, "allocator", "outside")


class Bar(NamedTuple):
    """A layout: its name, its simulated run, and whether its ranks fit the device."""

    label: str
    run: Run
    verdict: Verdict


def bars(found: Sequence[Bar], memory: float, folio: Folio) -> Seen:
    """The bars from top to bottom, and the same in words.

    Args:
        found: at least one.
        memory: bytes of a device, where the line stands.
        folio: the page.
    """
    longest = max(memory, *(needed(fullest(one.run)) for one in found))
    unit, size = byte_unit(longest)
    names = [folio.ui["play"]["classes"][name] for name in PARTS]
    rows = [_stack(one, size, names, folio.ui["playing"]) for one in found]
    title = f"{unit} {folio.ui['figure']['per_rank']}"
    unseen, top = folio.ui["play"]["unseen"], min(longest * 1.05, memory * MOST) / size
    said = said_bytes(memory)
    drawings = both(stacks, rows, names, unseen, title, top, memory / size, said=said)
    return Seen(drawings, "; ".join(f"{row.label}: {row.words}" for row in rows))


def fullest(run: Run) -> RankRecord:
    """The rank that needs most of its device."""
    return max(run.ranks, key=needed)


def needed(rank: RankRecord) -> int:
    """Memory of a device with which a rank fits."""
    return _counted(rank, "needed_bytes")


def _counted(rank: RankRecord, measure: str) -> int:
    number = rank.measures[measure]
    assert isinstance(number, int)
    return number


def _stack(one: Bar, size: float, names: Sequence[str], words: dict[str, str]) -> Stack:
    rank, is_over = fullest(one.run), one.verdict == "no"
    assert rank.memory is not None
    assert rank.memory.at_peak is not None
    held = [getattr(rank.memory.at_peak, f"{name}_bytes") for name in CLASSES]
    reserved = _counted(rank, "reserved_bytes")
    sizes = [*held, reserved - sum(held), needed(rank) - reserved]
    parts = tuple(
        Part(kind, name, number / size, f"{one.label}, {name}: {said_bytes(number)}")
        for kind, (name, number) in enumerate(zip(names, sizes, strict=True))
        if number > 0
    )
    said = words["over" if is_over else one.verdict]
    return Stack("", one.label, parts, f"{said_bytes(needed(rank))} · {said}", is_over=is_over)
