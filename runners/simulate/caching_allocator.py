"""CUDA's caching allocator, replayed: what it reserves for blocks that are allocated and freed.

In: sizes in bytes, in the order in which a program allocates and frees them, each on a stream.
Out: the peaks of *allocated* and of *reserved* bytes, as `torch.cuda.memory_stats` would report
them. No torch, no device.

The rules are those of `DeviceCachingAllocator` in c10/cuda/CUDACachingAllocator.cpp of torch 2.13,
and the sizes those of c10/core/AllocatorConfig.h; each method names the function that it repeats.
Left out are private pools (CUDA graphs, `torch.cuda.MemPool`), `Tensor.record_stream`, limits, and
every setting but expandable segments. No memory is returned to the driver, so that an expandable
segment grows at its end alone. Segments are assumed to get ascending addresses, which the driver
decides, because the best fit takes the lowest of equals.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

MIB = 1 << 20
BLOCK_BYTES = 512  # kMinBlockSize: every size is a multiple of it
SMALL_BYTES = MIB  # kSmallSize: the largest block of the small pool
SMALL_SEGMENT_BYTES = 2 * MIB  # kSmallBuffer
LARGE_SEGMENT_BYTES = 20 * MIB  # kLargeBuffer; the page of an expandable segment of large blocks
LEAST_LARGE_BYTES = 10 * MIB  # kMinLargeAlloc: from here on a block has a segment of its own
LARGE_UNIT_BYTES = 2 * MIB  # kRoundLarge: unit of such segments


class Allocate(NamedTuple):
    """Memory is requested; of 0 bytes the allocator knows nothing."""

    key: int
    num_bytes: int
    stream: int = 0


class Free(NamedTuple):
    """The memory of this key is freed."""

    key: int


AllocatorEvent = Allocate | Free


class Peaks(NamedTuple):
    """The most bytes of blocks that were given out, and of all segments."""

    allocated_bytes: int
    reserved_bytes: int


def replay(events: Iterable[AllocatorEvent], *, is_expandable: bool = False) -> Peaks:
    """`Peaks` of allocated and of reserved bytes, by replaying a log of allocations and frees."""
    allocator = CachingAllocator(is_expandable=is_expandable)
    held: dict[int, MemoryBlock] = {}
    for event in events:
        if isinstance(event, Free):
            allocator.free(held.pop(event.key))
        else:
            held[event.key] = allocator.allocate(event.num_bytes, event.stream)
    return Peaks(allocator.allocated.peak, allocator.reserved.peak)


@dataclass
class Gauge:
    """A number of bytes and the highest value that it had."""

    now: int = 0
    peak: int = 0

    def add(self, amount: int) -> None:
        """Raise the value, or lower it by a negative amount."""
        self.now += amount
        self.peak = max(self.peak, self.now)


class Pool(NamedTuple):
    """Where blocks of small or of large size on a stream are kept (`BlockPool`)."""

    stream: int
    is_small: bool


@dataclass(eq=False, slots=True)
class MemoryBlock:
    """A part of a segment: given out, or free."""

    address: int
    size: int
    pool: Pool
    is_free: bool = False
    previous: MemoryBlock | None = None
    next: MemoryBlock | None = None

    @property
    def end(self) -> int:
        """The first address behind the block."""
        return self.address + self.size


class CachingAllocator:
    """One device's allocator."""

    def __init__(self, *, is_expandable: bool = False) -> None:
        self.allocated, self.reserved = Gauge(), Gauge()  # bytes given out, and of all segments
        self.segments: list[MemoryBlock] = []  # the first block of each
        self._is_expandable = is_expandable
        self._free: defaultdict[Pool, list[tuple[int, int, MemoryBlock]]] = defaultdict(list)
        self._last: dict[Pool, MemoryBlock] = {}  # of the newest segment

    def allocate(self, num_bytes: int, stream: int = 0) -> MemoryBlock:
        """A `MemoryBlock`, the best fit or new, cut to size (`malloc`, `alloc_found_block`)."""
        size = rounded(max(num_bytes, 1), BLOCK_BYTES)  # `round_size`
        pool = Pool(stream, size <= SMALL_BYTES)
        block = self._fitting(pool, size) or self._new(pool, size)
        if self._splits(block, size):
            self._split(block, size)
        self.allocated.add(block.size)
        return block

    def free(self, block: MemoryBlock) -> None:
        """Take a block back, and merge it with free neighbours (`free_block`)."""
        self.allocated.add(-block.size)
        if block.next is not None and block.next.is_free:
            block = self._merged(block, self._taken(block.next))
        if block.previous is not None and block.previous.is_free:
            block = self._merged(self._taken(block.previous), block)
        self._keep(block)

    def _keep(self, block: MemoryBlock) -> None:
        block.is_free = True
        insort(self._free[block.pool], (block.size, block.address, block))

    def _taken(self, block: MemoryBlock) -> MemoryBlock:
        """A free block, out of its pool."""
        block.is_free = False
        free = self._free[block.pool]
        del free[bisect_left(free, (block.size, block.address))]
        return block

    def _fitting(self, pool: Pool, size: int) -> MemoryBlock | None:
        """The best fit: the smallest free block that is large enough (`get_free_block`)."""
        free = self._free[pool]
        index = bisect_left(free, (size,))
        if index == len(free):
            return None
        # The last block of an expandable segment can grow: any other is the better fit.
        can_grow = self._is_expandable and free[index][-1].next is None
        index += can_grow and index + 1 < len(free)
        return self._taken(free[index][-1])

    def _new(self, pool: Pool, size: int) -> MemoryBlock:
        """A block of a new segment (`alloc_block`), or at the end of the one that grows."""
        last = self._last.get(pool) if self._is_expandable else None
        if not self._is_expandable:
            more = segment_bytes(size)
        else:  # `try_allocate_expandable_block`
            page = SMALL_SEGMENT_BYTES if pool.is_small else LARGE_SEGMENT_BYTES
            more = rounded(size - (last.size if last is not None and last.is_free else 0), page)
        block = MemoryBlock(self.reserved.now if last is None else last.end, more, pool)
        self.reserved.add(more)
        if last is None:
            self.segments.append(block)
        else:
            last.next, block.previous = block, last
        self._last[pool] = block
        if last is not None and last.is_free:
            block = self._merged(self._taken(last), block)
        return block

    def _splits(self, block: MemoryBlock, size: int) -> bool:
        """True where the rest of a block is kept for others (`should_split`)."""
        rest = block.size - size
        if block.pool.is_small or self._is_expandable:
            return rest >= BLOCK_BYTES
        return rest > SMALL_BYTES

    def _split(self, block: MemoryBlock, size: int) -> None:
        """Cut the end off a block, and keep it."""
        rest = MemoryBlock(block.address + size, block.size - size, block.pool)
        rest.previous, rest.next = block, block.next
        if block.next is not None:
            block.next.previous = rest
        block.size, block.next = size, rest
        if self._last[block.pool] is block:
            self._last[block.pool] = rest
        self._keep(rest)

    def _merged(self, block: MemoryBlock, following: MemoryBlock) -> MemoryBlock:
        """A block that has taken the next one in (`try_merge_blocks`)."""
        block.size, block.next = block.size + following.size, following.next
        if following.next is not None:
            following.next.previous = block
        if self._last[block.pool] is following:
            self._last[block.pool] = block
        return block


def segment_bytes(size: int) -> int:
    """Bytes of a block's new segment: 2 MiB, 20 MiB, or size rounded (`get_allocation_size`)."""
    if size <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if size < LEAST_LARGE_BYTES:
        return LARGE_SEGMENT_BYTES
    return rounded(size, LARGE_UNIT_BYTES)


def rounded(size: int, unit: int) -> int:
    """A size as a whole number of units, upwards."""
    return -(-size // unit) * unit
