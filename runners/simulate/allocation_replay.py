"""A log of allocations and frees, replayed: the peaks that CUDA's caching allocator would report.

In: events in their order, with sizes in bytes. Out: `Replay`, what `torch.cuda.memory_stats` would
call the peaks of `allocated_bytes`, `active_bytes`, `requested_bytes` and `reserved_bytes`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pydantic import Field

from runners.simulate.caching_allocator import CachingAllocator, OutOfMemoryError
from runners.simulate.memory_blocks import AllocatorSettings, Block
from runners.traces.schema import Record


class Allocate(NamedTuple):
    """Memory is requested; of 0 bytes the allocator knows nothing."""

    key: int
    num_bytes: int
    stream: int = 0


class Free(NamedTuple):
    """The memory of this key is freed."""

    key: int


class Use(NamedTuple):
    """Work on another stream uses the memory of this key (`Tensor.record_stream`)."""

    key: int
    stream: int


class Pass(NamedTuple):
    """A stream has done work that was queued before: that of its next `num_frees`, or all."""

    stream: int
    num_frees: int | None = None


Event = Allocate | Free | Use | Pass


class Refusal(Record):
    """The request that the allocator could not serve."""

    event: int = Field(description="its place in the log, from 0")
    requested_bytes: int = Field(description="of the segment that it needed")
    allocated_bytes: int
    reserved_bytes: int = Field(description="after all that could be released was released")


class Replay(Record):
    """What the allocator did with a log."""

    peak_requested_bytes: int = Field(description="before sizes were rounded to 512 bytes")
    peak_allocated_bytes: int = Field(description="of blocks that were given out")
    peak_active_bytes: int = Field(description="and of those that another stream still used")
    peak_reserved_bytes: int = Field(description="of all segments")
    allocated_at_peak_bytes: int = Field(
        description="the most that was given out while the reserved bytes were at their peak"
    )
    num_retries: int = Field(description="requests for which all unused segments were released")
    refusal: Refusal | None = Field(description="where the log could not be replayed to its end")

    @property
    def fragmentation(self) -> float:
        """Share of the peak of reserved bytes that was not given out even at its fullest."""
        if not self.peak_reserved_bytes:
            return 0.0
        return 1 - self.allocated_at_peak_bytes / self.peak_reserved_bytes


def replay(events: Iterable[Event], settings: AllocatorSettings | None = None) -> Replay:
    """Replay a log, up to the first request that cannot be served.

    Raises:
        ValueError: the log frees or uses what it has not allocated, or allocates a key twice.
    """
    allocator = CachingAllocator(settings)
    held: dict[int, Block | None] = {}
    refusal = None
    for index, event in enumerate(events):
        try:
            _apply(event, allocator, held)
        except OutOfMemoryError as error:
            refusal = Refusal(
                event=index,
                requested_bytes=error.requested_bytes,
                allocated_bytes=error.allocated_bytes,
                reserved_bytes=error.reserved_bytes,
            )
            break
        except KeyError:
            raise ValueError(f"event {index}: {event} does not fit what is held") from None
    return Replay(
        peak_requested_bytes=allocator.requested.peak,
        peak_allocated_bytes=allocator.allocated.peak,
        peak_active_bytes=allocator.active.peak,
        peak_reserved_bytes=allocator.reserved.peak,
        allocated_at_peak_bytes=allocator.allocated_at_peak,
        num_retries=allocator.num_retries,
        refusal=refusal,
    )


def _apply(event: Event, allocator: CachingAllocator, held: dict[int, Block | None]) -> None:
    match event:
        case Allocate(key, num_bytes, stream):
            if key in held:
                raise KeyError(key)
            held[key] = allocator.allocate(num_bytes, stream) if num_bytes else None
        case Free(key):
            block = held.pop(key)
            if block is not None:
                allocator.free(block)
        case Use(key, stream):
            block = held[key]
            if block is not None:
                allocator.record_use(block, stream)
        case Pass(stream, num_frees):
            allocator.pass_events(stream, num_frees)
