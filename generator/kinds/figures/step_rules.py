"""Steps by their rules, no clock: who computes, sends and holds what from when to when.

The schedule of a pipeline: a forward takes one unit of time and a backward `backward_ratio` of
them; sending takes none. The orders are those of GPipe (Huang et al. 2019) and of 1F1B
(PipeDream-Flush, Narayanan et al. 2021).

A step of DDP, by the law of time: the gradient of a layer is a bucket of its own. It is ready when
the layer's backward ends, from the last layer to the first; the link sends one after another.

Products over gathered tokens, whose parts travel around a ring: a turn for each rank, and a
transfer in all but the last.

Layers of attention and experts, through which two microbatches pass in turn, or one while the
tokens of the other are on their way.

A step of FSDP, unit by unit, each event in one unit of time. The order is that of `fully_shard`: a
unit is gathered before it computes, in backward while the unit behind it still computes, and its
gradient is reduced while the next one is computed. The last unit belongs to the root, which stays
whole from forward on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, NamedTuple

from proofbook.runners.core.trace.schema import Setting

Kind = Literal["whole", "gather", "forward", "backward", "reduce", "wait"]
NUM_MOMENTS = 2  # of Adam, for each parameter


@dataclass(frozen=True)
class Action:
    """What a rank, a link or a unit does from one time to another; `name` says with what.

    In a pipeline the name is that of a microbatch, and times are those of one forward.
    """

    kind: Kind
    name: str
    start: float
    end: float


def number(setting: Setting) -> float:
    """A setting that counts or measures something, as a number."""
    assert isinstance(setting, int | float)
    return setting


# --- the schedule of a pipeline


def pipeline(
    rule: str, num_ranks: int, num_microbatches: int, backward_ratio: float
) -> list[list[Action]]:
    """A list of `Action`s for each rank, by `gpipe` or `one_f_one_b`, as early as inputs allow."""
    left = [list(_order(rule, num_ranks - rank, num_microbatches)) for rank in range(num_ranks)]
    done: dict[tuple[Kind, int, int], float] = {}
    actions: list[list[Action]] = [[] for _ in range(num_ranks)]
    while any(left):
        for rank, order in enumerate(left):
            while order and (needed := _needs(*order[0], rank, num_ranks)) in (None, *done):
                kind, microbatch = order.pop(0)
                free = actions[rank][-1].end if actions[rank] else 0.0
                start = max(free, done[needed] if needed else 0.0)
                end = start + (1.0 if kind == "forward" else backward_ratio)
                done[kind, microbatch, rank] = end
                actions[rank].append(Action(kind, str(microbatch), start, end))
    return actions


def idle_share(actions: Sequence[Sequence[Action]]) -> float:
    """Share of all ranks' time, up to the last action, in which a rank idles."""
    end = max(action.end for row in actions for action in row)
    busy = sum(action.end - action.start for row in actions for action in row)
    return 1 - busy / (end * len(actions))


def in_flight(actions: Sequence[Action]) -> list[tuple[float, int]]:
    """Of one rank's actions, pairs: a time; how many microbatches' activations it then holds."""
    changes = [
        (action.start, 1) if action.kind == "forward" else (action.end, -1) for action in actions
    ]
    times = [time for time, _ in sorted(changes)]
    return list(zip(times, accumulate(change for _, change in sorted(changes)), strict=True))


def _order(rule: str, num_behind: int, num: int) -> Iterator[tuple[Kind, int]]:
    """The passes of a rank in order; `num_behind` ranks, itself included, remain to the last."""
    ahead = num if rule == "gpipe" else min(num, num_behind)  # forwards before the first backward
    for turn in range(num + ahead - 1):
        if turn < num:
            yield "forward", turn
        if turn >= ahead - 1:
            yield "backward", turn - ahead + 1


def _needs(kind: Kind, microbatch: int, rank: int, num_ranks: int) -> tuple[Kind, int, int] | None:
    """The pass, on a neighbour or here, that has to end before this one starts."""
    if kind == "forward":
        return ("forward", microbatch, rank - 1) if rank else None
    if rank == num_ranks - 1:
        return "forward", microbatch, rank
    return "backward", microbatch, rank + 1


# --- a step of DDP


class Overlapped(NamedTuple):
    """What a rank computes, until it waits, and what its link sends; layers count from 1."""

    computed: list[Action]
    sent: list[Action]

    @property
    def end(self) -> float:
        """When the last gradient has arrived."""
        return self.sent[-1].end


def overlapped(settings: Mapping[str, Setting], *, overlaps: bool) -> Overlapped:
    """`Overlapped`: actions of rank and link in a DDP step, in ms, from settings of `overlap`.

    Buckets are sent while backward goes on, or without `overlaps` all gradients at once after it.
    """
    names = ("num_layers", "computing_seconds", "backward_seconds", "reducing_seconds")
    num, *times = (number(settings[name]) for name in names)
    whole, backward, sending = (1000 * seconds / num for seconds in times)  # of a layer
    layers, forward = range(1, int(num) + 1), whole - backward
    computed = [Action("forward", str(n), (n - 1) * forward, n * forward) for n in layers]
    sent: list[Action] = []
    for layer in reversed(layers):
        start = computed[-1].end
        computed.append(Action("backward", str(layer), start, start + backward))
        ready = max(start + backward, sent[-1].end if sent else 0)
        sent.append(Action("reduce", str(layer), ready, ready + sending))
    if not overlaps:
        end = computed[-1].end
        sent = [Action("reduce", f"1–{layers[-1]}", end, end + num * sending)]
    computed.append(Action("wait", "", computed[-1].end, sent[-1].end))
    return Overlapped(computed, sent)


# --- products over gathered tokens


def arrivals(settings: Mapping[str, Setting], num_ranks: int, *, waits: bool) -> list[list[Action]]:
    """Two lists of `Action`s for each rank: what it multiplies, and what arrives there, in ms.

    From settings of `tensor_degree`. A rank multiplies a part while the next is on its way; or, if
    it `waits`, all parts at once.
    """
    names = ("num_pairs", "computing_seconds", "sending_seconds")
    num, computing, sending = (number(settings[name]) for name in names)
    product, way = 1000 * computing / num / num_ranks, 1000 * sending / num / (num_ranks - 1)
    rows: list[list[Action]] = [[] for _ in range(2 * num_ranks)]
    now = 0.0
    for turn in [*range(num_ranks)] * int(num):
        is_last = turn == num_ranks - 1
        for rank, (multiplied, arrived) in enumerate(zip(rows[::2], rows[1::2], strict=True)):
            part, following = ((rank - turn - n) % num_ranks for n in (0, 1))
            if not waits:
                multiplied.append(Action("forward", str(part), now, now + product))
            elif is_last:
                name, end = f"0–{num_ranks - 1}", now + num_ranks * product
                multiplied.append(Action("forward", name, now, end))
            if not is_last:
                arrived.append(Action("gather", str(following), now, now + way))
        now = max(row[-1].end for row in rows if row)
    return rows


# --- microbatches that take turns

# Of each layer: compute with a microbatch, send its tokens, or wait for what is on its way.
ORDERS = {
    "in_turn": "compute 1, send 1, wait, compute 1, send 1, wait, "
    "compute 2, send 2, wait, compute 2, send 2, wait",
    "overlapped": "compute 1, wait, send 1, compute 2, wait, send 2, "
    "compute 1, wait, send 1, compute 2, wait, send 2",
}


def turns(settings: Mapping[str, Setting], strategy: str) -> list[list[Action]]:
    """Two lists of `Action`s, in ms: what a rank computes, and what is on its way.

    From settings of `dispatch`, with as many rows for each rank.
    """
    num, computing, sending = (
        number(settings[name]) for name in ("num_layers", "computing_seconds", "sending_seconds")
    )
    each, way = 1000 * computing / num / 4, 1000 * sending / num / 4
    computed: list[Action] = []
    sent = [Action("wait", "", 0.0, 0.0)]
    now = 0.0
    for did in ORDERS[strategy].split(", ") * int(num):
        does, _, microbatch = did.partition(" ")
        if does == "compute":
            computed.append(Action("forward", microbatch, now, now + each))
            now += each
        elif does == "send":
            sent.append(Action("gather", microbatch, now, now + way))
        else:
            now = max(now, sent[-1].end)
    return [computed, sent[1:]]


# --- a step of FSDP


class UnitStep(NamedTuple):
    """The actions of each unit in a step with Adam, the root last; the bytes held in each event."""

    rows: list[list[Action]]
    held: list[dict[str, float]]

    @property
    def peak_bytes(self) -> float:
        """The most bytes held in an event."""
        return max(sum(parts.values()) for parts in self.held)


def unit_step(sizes: Sequence[int], num_ranks: int, *, frees: bool) -> UnitStep:
    """`UnitStep`: a computed FSDP step, each unit's actions, and a rank's bytes in each event.

    `sizes` are bytes of the units' parameters, the root's last. With `frees`, units but the root
    are freed after forward, and gathered again.
    """
    model, rows = sum(sizes) / num_ranks, [list[Action]() for _ in sizes]
    held: list[dict[str, float]] = []
    whole: dict[int, int] = {}  # since when a unit is whole
    gradients: set[int] = set()  # of which units they are whole
    reduced_bytes = 0  # of gradients that are shards again
    for kind, unit, sent in _events(len(sizes) - 1, frees=frees):
        now = len(held)
        if kind == "gather":
            whole[unit] = now
        elif kind == "backward":
            gradients.add(unit)
        elif kind in ("reduce", "whole"):
            rows[unit].insert(0, Action("whole", "", whole.pop(unit), now))
        if kind == "whole":
            continue
        if kind == "reduce":
            gradients.remove(unit)
            reduced_bytes += sizes[unit]
        rows[unit].append(Action(kind, "", now, now + 1))
        held.append(
            {
                "optimizer": NUM_MOMENTS * model,
                "parameters": model,
                "gradients": reduced_bytes / num_ranks,
                "whole_parameters": sum(sizes[index] for index in whole),
                "whole_gradients": sum(sizes[index] for index in gradients),
                "copies": 0 if sent is None else sizes[sent],
            }
        )
    return UnitStep(rows, held)


def _events(root: int, *, frees: bool) -> Iterator[tuple[Kind, int, int | None]]:
    """Each event, its unit, and the unit in the buffer to send; `whole` ends, and takes no time.

    What forward gathers stays in its buffer as well, until the next unit is gathered; in backward
    it is gathered into its place at once. A gradient is copied to be reduced, and the copy stays
    until the next one is.
    """
    yield "gather", root, root
    for unit in range(root):
        yield "gather", unit, unit
        yield "forward", unit, unit
        if frees:
            yield "whole", unit, unit
    yield "forward", root, root - 1
    for unit in range(root, -1, -1):
        sent = unit + 1 if unit + 1 < root else None
        if frees and unit:
            yield "gather", unit - 1, sent
        yield "backward", unit, sent
        if unit != root:
            yield "reduce", unit, unit
    yield "reduce", root, root
