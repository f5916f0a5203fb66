"""Spans of one step: who computed, communicated or waited when. Pure; no torch.

In: the events of every rank, in nanoseconds of its wall clock. Out: consecutive spans a rank. A
rank alone cannot know whether it waits or transfers; `split_waiting` tells them apart once all
ranks' events are together.

Ranks of one machine share a wall clock; runs over several nodes have no timeline.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from runners.traces.measured import RankTime, Span
from runners.traces.outcome import Event

UPDATE = "optimizer"  # the phase that `runners.ranks.phases` calls so; torch stays out of here


def _waited_until(event: Event, events: Iterable[Event], place: int) -> int:
    """When the last of those who take part in `event` had come.

    A receiver waits for its sender and a blocking send for its receiver; the ranks of a collective
    wait for the last of them.
    """
    starts = [event.start_ns]
    places: defaultdict[tuple[int, str, int | None], int] = defaultdict(int)
    for other in events:
        key = (other.rank, other.name, other.peer)
        nth = places[key]
        places[key] += 1
        if event.peer is None:
            same = other.peer is None and other.name == event.name
        else:
            pair = {"recv": "send", "send": "recv"}[event.name]
            same = (other.rank, other.name, other.peer) == (event.peer, pair, event.rank)
        if same and nth == place and other.rank != event.rank:
            starts.append(other.start_ns)
    return max(starts)


def _paint(
    rank: int, window: tuple[int, int], events: list[Event], ready: dict[int, int]
) -> list[Span]:
    """One rank's step as consecutive spans: what covers each moment, waiting where nothing does.

    While a collective waits for other ranks, a phase may go on computing, as DDP's backward does,
    or itself wait for the collective: it computes where torch was at work.
    """
    knows_operations = any(event.kind == "operation" for event in events)
    start, end = window
    cuts = {start, end}
    for index, event in enumerate(events):
        cuts |= {event.start_ns, event.end_ns, ready.get(index, event.start_ns)}
    ordered = sorted(c for c in cuts if start <= c <= end)
    spans: list[Span] = []
    for left, right in pairwise(ordered):
        activity, name = "waiting", "waiting"
        covering = [
            (i, e) for i, e in enumerate(events) if e.start_ns <= left and e.end_ns >= right
        ]
        compute = [e for _, e in covering if e.kind == "compute"]
        moving = [e for i, e in covering if e.kind == "communication" and left >= ready[i]]
        held = [e for i, e in covering if e.kind == "communication" and left < ready[i]]
        at_work = not knows_operations or any(e.kind == "operation" for _, e in covering)
        if moving:
            activity, name = "communication", moving[0].name
        elif compute and not (held and (held[0].peer is not None or not at_work)):
            activity = "compute"
            name = min(compute, key=lambda e: e.end_ns - e.start_ns).name
        elif held:
            name = f"waiting in {held[0].name}"
        spans.append(
            Span(
                rank=rank,
                activity=activity,  # type: ignore[arg-type]
                name=name,
                start_seconds=round((left - start) / 1e9, 7),
                end_seconds=round((right - start) / 1e9, 7),
            )
        )
    return spans


def split_waiting(
    events: list[Event], windows: dict[int, tuple[int, int]], shortest_share: float = 0.002
) -> tuple[list[Span], list[RankTime]]:
    """Tell waiting from transferring.

    Args:
        events: of all ranks, one step.
        windows: each rank's start and end of that step, nanoseconds.
        shortest_share: spans shorter than this share of the step are drawn into their neighbour;
            the sums keep them.

    Returns:
        The spans of every rank and how each spent the step.
    """
    window = (min(w[0] for w in windows.values()), max(w[1] for w in windows.values()))
    spans: list[Span] = []
    times: list[RankTime] = []
    for rank in sorted(windows):
        own = _ended([e for e in events if e.rank == rank])
        places: defaultdict[tuple[str, int | None], int] = defaultdict(int)
        ready: dict[int, int] = {}
        for index, event in enumerate(own):
            if event.kind == "communication":
                key = (event.name, event.peer)
                ready[index] = _waited_until(event, events, places[key])
                places[key] += 1
        painted = _paint(rank, window, own, ready)
        times.append(_summed(rank, painted, (window[1] - window[0]) / 1e9))
        spans += _joined(painted, shortest_share * (window[1] - window[0]) / 1e9)
    return spans, times


def _ended(events: list[Event]) -> list[Event]:
    """A rank's events; no communication lasts into an update that began after it.

    An update waits for the gradients. gloo's thread may record the end of a collective only after
    the rank has gone on.
    """
    updates = [e.start_ns for e in events if e.kind == "compute" and e.name == UPDATE]
    return [
        replace(e, end_ns=min([e.end_ns, *(at for at in updates if at > e.start_ns)]))
        if e.kind == "communication"
        else e
        for e in events
    ]


def _joined(spans: list[Span], shortest_seconds: float) -> list[Span]:
    """Spans with those too short to see given to the one before; at most what a figure can show."""
    kept: list[Span] = []
    for span in spans:
        if kept and (
            span.end_seconds - span.start_seconds < shortest_seconds
            or (span.activity, span.name) == (kept[-1].activity, kept[-1].name)
        ):
            kept[-1] = kept[-1].model_copy(update={"end_seconds": span.end_seconds})
        else:
            kept.append(span)
    return kept


def _summed(rank: int, spans: list[Span], whole_seconds: float) -> RankTime:
    sums: defaultdict[str, float] = defaultdict(float)
    for span in spans:
        sums[span.activity] += span.end_seconds - span.start_seconds
    return RankTime(
        rank=rank,
        compute_seconds=round(sums["compute"], 7),
        communication_seconds=round(sums["communication"], 7),
        waiting_seconds=round(sums["waiting"], 7),
        waiting_share=round(sums["waiting"] / whole_seconds, 5),
    )
