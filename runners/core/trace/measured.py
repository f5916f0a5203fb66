"""The records of meters and clocks on ranks: memory, collectives and times.

Two kinds of bytes are measured, and they are not interchangeable:

- *Tensor bytes* are the sizes of storages, as the memory meter follows them: exact, the same on
  every machine, without the allocator's rounding. Every field of `Memory` but two holds them.
- *Process and allocator bytes* are what the system counts. `Memory.kernel_peak_bytes` counts pages
  of the process, and `Memory.allocator` the bytes requested of an accelerator's caching allocator.
  The metered tensor bytes are checked against them.

Every measured time of a run is in `Timing`.
"""

from __future__ import annotations

import statistics
from typing import Literal

from proofbook.runners.core.trace.schema import Activity, Record


class MemoryClasses(Record):
    """Tensor bytes by class."""

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    buckets_bytes: int  # what a wrapper (DDP, FSDP) keeps to communicate
    buffers_bytes: int  # module buffers and input samples


class AllocatorMemory(Record):
    """The bytes of an accelerator's allocator on one rank, above its start."""

    peak_bytes: int  # allocator bytes: the most that was requested and not yet freed
    workspace_bytes: int  # allocator bytes of cuBLAS, in no tensor
    rounding_bytes: int  # by which the check allows more: a rounded block for each storage
    host_peak_bytes: int | None = None  # tensor bytes in main memory, by the meter


class Memory(Record):
    """The memory of one rank, above what it held before the model was built.

    `peak_bytes`, `at_peak`, `largest` and `phases` are tensor bytes, from the dispatch-mode meter
    of a metered pass. `kernel_peak_bytes` counts resident pages of the process over the same
    stretch, and is the only one that a budgeted pass has on CPU. On an accelerator the tensor bytes
    are those on the device, and `allocator` holds the allocator bytes that they are checked
    against.
    """

    peak_bytes: int | None = None  # tensor bytes: the most held at once
    peak_phase: str | None = None  # the phase of that moment
    at_peak: MemoryClasses | None = None  # tensor bytes of each class at that moment
    largest: MemoryClasses | None = None  # tensor bytes: the most that each class ever held
    phases: dict[str, int] = {}  # tensor bytes: the peak of each phase
    # Process bytes: growth of the kernel's high-water mark of resident pages.
    kernel_peak_bytes: int | None = None
    allocator: AllocatorMemory | None = None  # allocator bytes, of an accelerator


class Transfer(Record):
    """All calls of one operation between the same ranks; at least one of the two is named.

    Ranks are global: the number in the whole run, also where the operation ran in a subgroup.
    """

    # Null: every rank of the group (gather, reduce), or any rank that sent (recv).
    source: int | None
    destination: int | None  # null: every rank of the group (broadcast, scatter)
    count: int
    bytes: int  # payload as this rank sees it, summed over the calls


class Collective(Record):
    """All calls of one operation on one rank during one metered step."""

    operation: str
    count: int
    bytes: int  # payload passed to the operation, summed over the calls
    # The same calls by source and destination, where the operation has a root or a peer: send,
    # recv, broadcast, scatter, gather, reduce.
    transfers: list[Transfer] = []


class SampledSeconds(Record):
    """Repeated measurements of one time, raw, with what is reported of them."""

    unit: Literal["seconds"]
    samples: list[float]
    num_samples: int
    first_quartile_seconds: float
    median_seconds: float
    third_quartile_seconds: float

    @classmethod
    def of(cls, seconds: list[float]) -> SampledSeconds:
        """`SampledSeconds`: samples in seconds, at least one, rounded; median and quartiles."""
        kept = [round(s, 7) for s in seconds]
        several = kept if len(kept) > 1 else 2 * kept
        first, middle, third = statistics.quantiles(several, n=4, method="inclusive")
        return cls(
            unit="seconds", samples=kept, num_samples=len(kept),
            first_quartile_seconds=round(first, 7), median_seconds=round(middle, 7),
            third_quartile_seconds=round(third, 7),
        )  # fmt: skip


class Span(Record):
    """An activity of a rank between two moments of the step that a timeline shows."""

    rank: int
    activity: Activity
    name: str
    start_seconds: float
    end_seconds: float


class RankTime(Record):
    """How one rank spent the step of the timeline."""

    rank: int
    compute_seconds: float
    communication_seconds: float
    waiting_seconds: float
    waiting_share: float  # of the whole step, 0 to 1


class Timing(Record):
    """Every measured time of a run."""

    wall_seconds: float  # the run with all its passes
    # More ranks than cores, or than accelerators: not for fits of speed.
    oversubscribed: bool = False
    step: SampledSeconds | None = None
    stages: dict[str, float] = {}  # seconds by stage
    prediction: dict[str, float] = {}  # seconds by prediction step
    timeline: list[Span] = []
    ranks: list[RankTime] = []
    # Times that the experiment itself took, beside those of steps.
    measures: dict[str, SampledSeconds] = {}

    @property
    def sampled(self) -> dict[str, SampledSeconds]:
        """Every time that was taken repeatedly, by name."""
        return {**self.measures, **({"step": self.step} if self.step else {})}
