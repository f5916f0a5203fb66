"""What strategies of a plan hold at their peak and would reserve, as bars under a device's memory.

In: simulated runs of one state. Out: a bar for each strategy, of the rank that reserves most, and
for the table what it holds, and the most that any rank sends and computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from generator.content.exhibit import Figure
from generator.evidence import units
from generator.evidence.folio import ABSENT, Folio
from generator.evidence.play_states import ShownRun, State
from generator.evidence.value import Value, computed, numeric
from generator.figures.drawings.stacks import Part, Stack
from generator.figures.play.memory_view import CLASSES, classes, stacked
from generator.figures.play.seen import Seen, in_one_cell, said_bytes
from runners.plans.closed_forms import layers_of_stages, pipelined_work
from runners.traces.records import RankRecord

RESERVED, NEEDED = "measures.reserved_bytes", "measures.needed_bytes"


def plan(states: Sequence[State], figure: Figure, folio: Folio) -> list[Seen]:
    """The bars of each state, all on the axis of the most that any strategy reserves."""
    most = max(reserved(_busiest(one)[1]) for state in states for one in state.runs)
    parts = (*CLASSES, "allocator")
    names = [folio.ui["play"]["classes"][name] for name in parts]
    return stacked(
        states, figure, folio, parts, most,
        lambda one, size: [_stack(one, size, names)],
        lambda one: dict(_cells(one, folio)),
    )  # fmt: skip


def reserved(rank: RankRecord) -> int:
    """Bytes that CUDA's allocator would hold for a rank."""
    return _counted(rank, "reserved_bytes")


def needed(ranks: Sequence[RankRecord], measure: str = "needed_bytes") -> int:
    """Memory of a device that the rank with the highest demand needs to fit."""
    return max(_counted(rank, measure) for rank in ranks)


def _counted(rank: RankRecord, measure: str) -> int:
    number = rank.measures[measure]
    assert isinstance(number, int)
    return number


def _busiest(one: ShownRun, measure: str = "reserved_bytes") -> tuple[int, RankRecord]:
    """The rank with most of a measure, and its position."""
    return max(enumerate(one.run.ranks), key=lambda at: _counted(at[1], measure))


def _stack(one: ShownRun, size: float, names: Sequence[str]) -> Stack:
    rank, sizes = _busiest(one)[1], []
    assert rank.memory is not None
    assert rank.memory.at_peak is not None
    held = [getattr(rank.memory.at_peak, f"{name}_bytes") for name in CLASSES]
    sizes = [*held, reserved(rank) - sum(held)]
    parts = tuple(
        Part(kind, name, number / size, f"{one.label}, {name}: {said_bytes(number)}")
        for kind, (name, number) in enumerate(zip(names, sizes, strict=True))
        if number > 0
    )
    limits = tuple(needed(one.run.ranks, name) / size for name in ("needed_bytes", "least_bytes"))
    return Stack("", one.label, parts, said_bytes(reserved(rank)), (limits[0], limits[1]))


def _cells(one: ShownRun, folio: Folio) -> Iterator[tuple[str, Markup]]:
    """What the fullest rank reserves and holds, and the most that any rank computes and sends."""
    position, rank = _busiest(one)
    path, words = f"{one.path}.ranks[{position}]", folio.ui["plan"]
    in_need, _ = _busiest(one, "needed_bytes")
    yield words["fits_in"], _least_device(needed(one.run.ranks), folio)
    yield words["needed"], folio.cell(f"{one.path}.ranks[{in_need}].{NEEDED}")
    yield words["reserved"], folio.cell(f"{path}.{RESERVED}")
    yield words["sends"], _sent(one, folio)
    yield words["held"], _held(path, rank, folio)
    yield words["at_least"], _seconds_at_least(one, folio)
    computing, _ = _busiest(one, "flops")
    yield words["flops"], folio.cell(f"{one.path}.ranks[{computing}].measures.flops")


def _held(path: str, rank: RankRecord, folio: Folio) -> Markup:
    """What a rank holds at its peak by class, and what the allocator reserves beyond it."""
    assert rank.memory is not None
    held = classes(path, rank.memory, folio)
    beyond = f"{path}.{RESERVED} - {path}.memory.peak_bytes"
    held[folio.ui["play"]["classes"]["allocator"]] = folio.cell(beyond)
    return in_one_cell(Markup("{} {}").format(name, amount) for name, amount in held.items())


def _least_device(needed: int, folio: Folio) -> Markup:
    """The smallest device whose memory holds as much."""
    assert folio.book.plan is not None
    devices = [(folio.value(one.memory), one.name) for one in folio.book.plan.devices]
    known = [(numeric(memory), memory, name) for memory, name in devices if memory is not None]
    fitting = [one for one in sorted(known, key=lambda one: one[0]) if one[0] >= needed]
    if not fitting:
        nothing = folio.ui["plan"]["none_fits"]
        return Markup('<span class="pb-does-not-hold">{}</span>').format(nothing)
    _, memory, name = fitting[0]
    return Markup("<span>{} {}</span>").format(folio.line(name), folio.show(memory))


def _sent(one: ShownRun, folio: Folio) -> Markup:
    """The payloads of the rank that sends most, by operation and axis, the largest first."""
    position, rank = _busiest(one, "sent_bytes")
    path, words = f"{one.path}.ranks[{position}]", folio.ui["plan"]["operations"]
    found = []
    for call in sorted(rank.collectives, key=lambda call: -call.bytes):
        operation, _, axis = call.operation.partition("_over_")
        value = folio.cell(f"{path}.collectives['{call.operation}'].bytes")
        name = Markup("<code>{}</code> {}").format(operation, words.get(axis, axis))
        found.append(Markup("{} {}").format(name, value))
    return in_one_cell(found) if found else ABSENT


def _seconds_at_least(one: ShownRun, folio: Folio) -> Markup:
    """The longer of computing and sending at the rates that are cited, over the ranks.

    The stages of a pipeline also wait, for one microbatch on each other stage.
    """
    assert folio.book.plan is not None
    is_fp32 = one.run.settings["precision"] == "fp32"
    rates = folio.book.plan.compute_fp32 if is_fp32 else folio.book.plan.compute
    computing, sending = folio.value(rates), folio.value(folio.book.plan.link)
    bounds = []
    for position in range(len(one.run.ranks)):
        path = f"{one.path}.ranks[{position}].measures"
        for amount, rate in (("flops", computing), ("sent_bytes", sending)):
            value = folio.value(f"{path}.{amount}")
            if value is not None and rate is not None:
                bounds.append(_quotient(value, rate))
    stages = _stages(one)
    if stages > 1 and computing is not None:
        bounds.append(_filled_and_drained(one, stages, computing, folio))
    return folio.show(max(bounds, key=numeric)) if bounds else ABSENT


def _stages(one: ShownRun) -> int:
    """Into how many stages a strategy such as `1f1b.8+zero1.8` divides the model."""
    for part in str(one.run.settings["strategy"]).split("+"):
        name, _, size = part.partition(".")
        if name in ("gpipe", "1f1b"):
            return int(size or str(one.run.settings["num_ranks"]))
    return 1


def _filled_and_drained(one: ShownRun, stages: int, rate: Value, folio: Folio) -> Value:
    """Seconds of the last stage, and of one microbatch on each stage before it."""
    work = [
        folio.value(f"{one.path}.ranks[{position}].measures.flops")
        for position in range(len(one.run.ranks))
    ]
    microbatches = folio.value(f"{one.path}.settings.num_microbatches")
    layers = folio.value(f"{one.path}.settings.num_layers")
    assert microbatches is not None
    assert layers is not None
    sizes = layers_of_stages(int(numeric(layers)), stages)
    inner = sum(sizes[1:-1]) / sizes[1]
    flops = pipelined_work([value for value in work if value is not None], inner, microbatches)
    return _quotient(flops, rate)


def _quotient(amount: Value, rate: Value) -> Value:
    seconds = numeric(amount) / numeric(rate)
    left, right = (f"({one.formula})" if one.inputs else one.formula for one in (amount, rate))
    return computed(seconds, units.SECONDS, f"{left} / {right}", (amount, rate))
