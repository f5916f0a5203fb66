"""The activity meter: who computed, communicated or waited when, for one step of a metered pass.

In: the phases a rank marks and the profiler's events of that step. Out: spans on the wall clock,
which the ranks of one machine share. A rank alone cannot know whether it waits or transfers;
`split_waiting` tells them apart once all ranks' spans are together.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch.profiler import ProfilerActivity, profile

from runners.trace import RankTime, Span

# Kernels of NCCL. Until 2.18 ncclKernel_AllReduce_RING_LL_Sum_float, since 2.19
# ncclDevKernel_AllReduce_Sum_f32_RING_LL (NCCL's src/device/generate.py), and since 2.27 also
# ncclSymDevKernel_ or ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_f32, over memory that ranks
# registered (NCCL's src/device/symmetric/generate.py).
NCCL_KERNEL = re.compile(r"nccl(?:Dev|SymDev|SymkDev)?Kernel_(?P<name>[A-Za-z]+)")
NCCL_NAMES = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
}
# What ProcessGroupNCCL calls the collective in its record of parameters, which the profiler puts
# into the kernel's metadata; all_to_allv is the one of unequal parts.
CALLED = re.compile(r'"Collective name":\s*"(?P<name>all_to_all|scatter|gather|send|recv)')
PASSED = ("send", "recv", "recvAnySource")  # the rank marks them itself: it knows the peer
# Between two operations Python and autograd run; a rank with a longer gap than this is waiting.
LONGEST_GAP_NS = 200_000


@dataclass(frozen=True)
class Event:
    """One thing a rank did, in nanoseconds of the wall clock.

    `peer` is the other rank of a send or a receive; None for a collective of all ranks. An
    "operation" is a stretch in which torch itself was at work, whatever phase the rank marked.
    """

    rank: int
    kind: str  # "compute", "communication" or "operation"
    name: str
    start_ns: int
    end_ns: int
    peer: int | None = None


class ActivityMeter:
    """Records one step of one rank; enter it around the step."""

    def __init__(self, rank: int, device: str) -> None:
        self.rank = rank
        self.device = device
        self.events: list[Event] = []
        activities = [ProfilerActivity.CPU]
        if device == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self._profile = profile(activities=activities, record_shapes=True)
        self.start_ns = self.end_ns = 0

    def __enter__(self) -> ActivityMeter:
        self._profile.__enter__()
        self.start_ns = time.time_ns()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.end_ns = time.time_ns()
        self._profile.__exit__(*exception)
        results: Any = self._profile.profiler.kineto_results  # type: ignore[union-attr]
        for event in results.events():
            name = collective_of(event.name(), event.metadata_json)
            if name is not None and name not in PASSED:
                start, end = event.start_ns(), event.start_ns() + event.duration_ns()
                self.events.append(Event(self.rank, "communication", name, start, end))
        at_work = [
            (event.start_ns(), event.start_ns() + event.duration_ns())
            for event in results.events()
            if _is_operation(event, self.device)
        ]
        self.events += [Event(self.rank, "operation", "", *one) for one in _merged(at_work)]

    def add(self, kind: str, name: str, start_ns: int, peer: int | None = None) -> None:
        """Add what the rank itself marked, from `start_ns` until now."""
        self.events.append(Event(self.rank, kind, name, start_ns, time.time_ns(), peer))


def collective_of(name: str, metadata: Callable[[], str] = str) -> str | None:
    """What PyTorch's users call the collective that an event of a backend belongs to, or None.

    On an accelerator these are NCCL's kernels with the device's own times, since the `nccl:` events
    on the CPU end when the kernel is started; ranks that share one communicate over gloo there too.

    Args:
        name: of the event.
        metadata: gives what the profiler knows of it besides; read where the name does not tell.
    """
    if name.startswith("gloo:"):
        return name.removeprefix("gloo:")
    match = NCCL_KERNEL.match(name)
    if match is None:
        return None
    if match["name"] != "SendRecv":
        return NCCL_NAMES.get(match["name"], match["name"])
    # One kernel for all that is built on sends; the call that started it says which.
    called = CALLED.search(metadata())
    return called["name"] if called else "send"


def _is_operation(event: Any, device: str) -> bool:
    """Whether a profiler's event is torch computing: an operation, or a kernel where there are."""
    if device == "cuda":
        is_kernel = str(event.device_type()).endswith("CUDA")
        return is_kernel and collective_of(event.name()) is None
    return bool(event.name().startswith(("aten::", "autograd::")))


def _merged(stretches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stretches of work in order, those joined that only a moment of Python parts."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if joined and start <= joined[-1][1] + LONGEST_GAP_NS:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


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
    """Put all ranks' events on one clock and tell waiting from transferring.

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
        own = [e for e in events if e.rank == rank]
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
