"""What CUDA's caching allocator is made of: its settings, its sizes, its blocks and their pools.

The sizes stand in c10/core/AllocatorConfig.h of torch 2.13, `Block` and `BlockPool` in
c10/cuda/CUDACachingAllocator.cpp.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

MIB = 1 << 20
BLOCK_BYTES = 512  # kMinBlockSize: every size is a multiple of it
SMALL_BYTES = MIB  # kSmallSize: the largest block of the small pool
SMALL_SEGMENT_BYTES = 2 * MIB  # kSmallBuffer
LARGE_SEGMENT_BYTES = 20 * MIB  # kLargeBuffer; the page of an expandable segment of large blocks
LEAST_LARGE_BYTES = 10 * MIB  # kMinLargeAlloc: from here on a block has a segment of its own
LARGE_UNIT_BYTES = 2 * MIB  # kRoundLarge: unit of such segments


@dataclass(frozen=True)
class AllocatorSettings:
    """Settings of the allocator.

    Attributes:
        allowed_bytes: what `set_per_process_memory_fraction` allows; None for no limit.
        expandable_segments: one range of addresses for each stream and pool, which grows
            (`PYTORCH_ALLOC_CONF`).
    """

    allowed_bytes: int | None = None
    expandable_segments: bool = False


def segment_bytes(size: int) -> int:
    """Size of a new segment for a block of this rounded size (`get_allocation_size`)."""
    if size <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if size < LEAST_LARGE_BYTES:
        return LARGE_SEGMENT_BYTES
    return rounded(size, LARGE_UNIT_BYTES)


def rounded(size: int, unit: int) -> int:
    """A size as a whole number of units, upwards."""
    return -(-size // unit) * unit


def block_bytes(num_bytes: int) -> int:
    """Size of the block for a request (`round_size`): at least 512 bytes, in units of 512."""
    return rounded(max(num_bytes, 1), BLOCK_BYTES)


@dataclass
class Gauge:
    """A number of bytes and the highest value that it had."""

    now: int = 0
    peak: int = 0

    def add(self, amount: int) -> None:
        """Raise the value, or lower it by a negative amount."""
        self.now += amount
        self.peak = max(self.peak, self.now)


@dataclass(eq=False, slots=True)
class Block:
    """A part of a segment: given out, free, or addresses without memory (not `mapped`)."""

    address: int
    size: int
    stream: int
    pool: Pool
    page: int = 0  # bytes of a page of an expandable segment; 0 in an ordinary segment
    allocated: bool = False
    mapped: bool = True
    previous: Block | None = None
    next: Block | None = None
    uses: set[int] = field(default_factory=set)  # other streams that used it (`record_stream`)
    num_events: int = 0  # of those streams that have not passed its end yet

    @property
    def is_split(self) -> bool:
        """True where its segment has other blocks too."""
        return self.previous is not None or self.next is not None

    @property
    def is_available(self) -> bool:
        """True where neither the program nor a stream uses it."""
        return not (self.allocated or self.num_events or self.uses)

    def link(self, previous: Block | None, following: Block | None) -> None:
        """Put the block between two neighbours (`Block::splice`)."""
        self.previous, self.next = previous, following
        if previous is not None:
            previous.next = self
        if following is not None:
            following.previous = self


@dataclass(eq=False)
class Pool:
    """Free blocks of small or of large size, by stream, size and address (`BlockPool`)."""

    is_small: bool
    free: list[tuple[int, int, int, Block]] = field(default_factory=list)
    unmapped: list[tuple[int, int, Block]] = field(default_factory=list)

    def add(self, block: Block) -> None:
        """Take a free block in, or one without memory."""
        if block.mapped:
            insort(self.free, (block.stream, block.size, block.address, block))
        else:
            insort(self.unmapped, (block.stream, block.address, block))

    def remove(self, block: Block) -> None:
        """Take a block out."""
        if block.mapped:
            del self.free[bisect_left(self.free, (block.stream, block.size, block.address))]
        else:
            del self.unmapped[bisect_left(self.unmapped, (block.stream, block.address))]

    def at(self, index: int, stream: int) -> Block | None:
        """The free block at this index, if there is one and it is of the stream."""
        if 0 <= index < len(self.free) and self.free[index][0] == stream:
            return self.free[index][3]
        return None
