"""The activity meter: who computed, communicated or waited when, for one step of a metered pass.

In: the phases a rank marks and the profiler's events of that step. Out: events on the wall clock,
from which `spans.py` makes a timeline of all ranks.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from typing import Any

from torch.profiler import ProfilerActivity, profile

from proofbook.runners.core.trace.outcome import Event

# Kernels of NCCL. Until 2.18 ncclKernel_AllReduce_RING_LL_Sum_float, since 2.19
# ncclDevKernel_AllReduce_Sum_f32_RING_LL (NCCL's src/device/generate.py), and since 2.27 also
# ncclSymDevKernel_ or ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_f32, over memory that ranks
# registered (NCCL's src/device/symmetric/generate.py).
NCCL_KERNEL = re.compile(r"nccl(?:Dev|SymDev|SymkDev)?Kernel_(?P<name>[A-Za-z]+)")
# What ProcessGroupNCCL calls the collective in its record of parameters, which the profiler puts
# into the kernel's metadata; all_to_allv is the one of unequal parts.
CALLED = re.compile(r'"Collective name":\s*"(?P<name>all_to_all|scatter|gather|send|recv)')
PASSED = ("send", "recv", "recvAnySource")  # the rank marks them itself: it knows the peer
# Between two operations Python and autograd run; a rank with a longer gap than this is waiting.
LONGEST_GAP_NS = 200_000


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
        at_work: list[tuple[int, int]] = []
        for event in results.events():
            name = collective_of(event.name(), event.metadata_json)
            stretch = event.start_ns(), event.start_ns() + event.duration_ns()
            if name is not None and name not in PASSED:
                self.events.append(Event(self.rank, "communication", name, *stretch))
            if _is_operation(event, self.device):
                at_work.append(stretch)
        self.events += [Event(self.rank, "operation", "", *span) for span in _merged(at_work)]

    def add(self, kind: str, name: str, start_ns: int, peer: int | None = None) -> None:
        """Add an event that the rank itself marked, from `start_ns` until now."""
        self.events.append(Event(self.rank, kind, name, start_ns, time.time_ns(), peer))


def collective_of(name: str, metadata: Callable[[], str] = str) -> str | None:
    """The collective (`all_gather`, `reduce_scatter`, …) of a gloo event or NCCL kernel; else None.

    On an accelerator these are NCCL's kernels with the device's own times, since the `nccl:` events
    on the CPU end when the kernel is started; ranks that share one communicate over gloo there too.
    `metadata` gives the profiler's other fields of an event whose name is not enough.
    """
    if name.startswith("gloo:"):
        return name.removeprefix("gloo:")
    match = NCCL_KERNEL.match(name)
    if match is None:
        return None
    if match["name"] != "SendRecv":
        return re.sub("(?<=[a-z])(?=[A-Z])", "_", match["name"]).lower()
    # One kernel for all that is built on sends; the call that started it says which.
    called = CALLED.search(metadata())
    return called["name"] if called else "send"


def _is_operation(event: Any, device: str) -> bool:
    """Whether a profiler's event is computation: an operation, or a kernel on CUDA."""
    if device == "cuda":
        is_kernel = str(event.device_type()).endswith("CUDA")
        return is_kernel and collective_of(event.name()) is None
    return bool(event.name().startswith(("aten::", "autograd::")))


def _merged(stretches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stretches of work in order; those that only a short gap parts are joined."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if joined and start <= joined[-1][1] + LONGEST_GAP_NS:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
