"""Spans of one step: who computed, communicated or waited when. Pure; no torch.

In: the events of every rank, in nanoseconds of its wall clock. Out: consecutive spans a rank. A
rank alone cannot know whether it waits or transfers; `split_waiting` tells them apart once all
ranks' events are together.

Ranks of one machine share a wall clock; runs over several nodes have no timeline.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise

from proofbook.runners.core.trace.measured import RankTime, Span
from proofbook.runners.core.trace.outcome import Event

UPDATE = "optimizer"  # the phase that `runners.core.ranks.phases` calls so; torch stays out of here
SHORTEST_SHARE = 0.002  # of a step: shorter spans are drawn into their neighbour; sums keep them


def _ready_at(events: Iterable[Event]) -> list[int]:
    """When the last participant of each event had arrived, in nanoseconds.

    A receiver waits for its sender and a blocking send for its receiver; the ranks of a collective
    wait for the last of them.
    """
    nth: Counter[tuple[int, str, int | None]] = Counter()
    meetings: list[tuple[object, ...]] = []
    came: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
    for event in events:
        meeting: tuple[object, ...] = (id(event),)  # a computation waits for nobody
        if event.kind == "communication":
            place = (event.rank, event.name, event.peer)
            ends = (event.rank, event.peer) if event.name == "send" else (event.peer, event.rank)
            meeting = (event.name if event.peer is None else ends, nth[place])
            nth[place] += 1
        meetings.append(meeting)
        came[meeting].append(event.start_ns)
    return [max(came[meeting]) for meeting in meetings]


def _paint(rank: int, window: tuple[int, int], events: list[tuple[Event, int]]) -> list[Span]:
    """One rank's step as consecutive spans; a moment without an event is waiting.

    While a collective waits for other ranks, a phase may go on computing, as DDP's backward does,
    or itself wait for the collective: it computes where torch was at work.
    """
    knows_operations = any(event.kind == "operation" for event, _ in events)
    # An update waits for the gradients. gloo's thread may record the end of a collective only after
    # the rank has gone on: no communication lasts into an update that began after it.
    updates = [e.start_ns for e, _ in events if e.kind == "compute" and e.name == UPDATE]
    start, end = window
    cuts = {start, end}
    for event, ready in events:
        cuts |= {event.start_ns, event.end_ns, ready}
    ordered = sorted(c for c in cuts if start <= c <= end)
    spans: list[Span] = []
    for left, right in pairwise(ordered):
        activity, name = "waiting", "waiting"
        covering = [(e, at) for e, at in events if e.start_ns <= left and e.end_ns >= right]
        compute = [e for e, _ in covering if e.kind == "compute"]
        under_way = [
            (e, ready)
            for e, ready in covering
            if e.kind == "communication" and not any(e.start_ns < at <= left for at in updates)
        ]
        moving = [e for e, ready in under_way if left >= ready]
        held = [e for e, ready in under_way if left < ready]
        at_work = not knows_operations or any(e.kind == "operation" for e, _ in covering)
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
    events: list[Event], windows: dict[int, tuple[int, int]]
) -> tuple[list[Span], list[RankTime]]:
    """Lists of Spans and RankTimes from a step's events; waiting for the last rank is split off.

    The events are those of one step; each rank's window is its start and its end, in nanoseconds.
    """
    window = (min(w[0] for w in windows.values()), max(w[1] for w in windows.values()))
    whole_seconds = (window[1] - window[0]) / 1e9
    ready = list(zip(events, _ready_at(events), strict=True))
    spans: list[Span] = []
    times: list[RankTime] = []
    for rank in sorted(windows):
        own = [(event, at) for event, at in ready if event.rank == rank]
        painted = _paint(rank, window, own)
        times.append(_summed(rank, painted, whole_seconds))
        spans += _joined(painted, SHORTEST_SHARE * whole_seconds)
    return spans, times


def _joined(spans: list[Span], shortest_seconds: float) -> list[Span]:
    """The spans that a figure shows: one too short to see lengthens the span before it."""
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
