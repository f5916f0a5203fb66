"""A log of allocations and frees, replayed: the peaks that CUDA's caching allocator would report.

In: events in their order, with sizes in bytes. Out: `Replay`, what `torch.cuda.memory_stats` would
call the peaks of `allocated_bytes`, `active_bytes` and `reserved_bytes`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

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


class Replay(Record):
    """What the allocator did with a log."""

    peak_allocated_bytes: int  # of blocks that were given out
    peak_active_bytes: int  # and of those that another stream still used
    peak_reserved_bytes: int  # of all segments
    is_refused: bool  # the log could not be replayed to its end


def replay(events: Iterable[Event], settings: AllocatorSettings | None = None) -> Replay:
    """Replay a log, up to the first request that cannot be served."""
    allocator = CachingAllocator(settings)
    held: dict[int, Block | None] = {}
    is_refused = False
    try:
        for event in events:
            _apply(event, allocator, held)
    except OutOfMemoryError:
        is_refused = True
    return Replay(
        peak_allocated_bytes=allocator.allocated.peak,
        peak_active_bytes=allocator.active.peak,
        peak_reserved_bytes=allocator.reserved.peak,
        is_refused=is_refused,
    )


def _apply(event: Event, allocator: CachingAllocator, held: dict[int, Block | None]) -> None:
    match event:
        case Allocate(key, num_bytes, stream):
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
