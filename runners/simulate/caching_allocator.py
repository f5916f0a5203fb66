"""CUDA's caching allocator, replayed: what it reserves for blocks that are allocated and freed.

In: sizes in bytes, in the order in which a program allocates and frees them, each on a stream.
Out: blocks in segments, and the peaks of *allocated* and of *reserved* bytes. No torch, no device.

The rules are those of `DeviceCachingAllocator` in c10/cuda/CUDACachingAllocator.cpp of torch 2.13;
each method names the function that it repeats. Left out are private pools (CUDA graphs,
`torch.cuda.MemPool`), callbacks that free memory, and every setting but those of
`AllocatorSettings`. Segments are assumed to get ascending addresses, which the driver decides,
because the best fit takes the lowest of equals.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator

from runners.simulate.memory_blocks import (
    BLOCK_BYTES,
    LARGE_SEGMENT_BYTES,
    SMALL_BYTES,
    SMALL_SEGMENT_BYTES,
    AllocatorSettings,
    Block,
    Gauge,
    Pool,
    block_bytes,
    rounded,
    segment_bytes,
)

# Addresses of an expandable segment: whole pages of either pool, and more than any device has.
_ENDLESS = 5 << 50


class OutOfMemoryError(MemoryError):
    """The allocator could not serve a request, also after unused segments were released."""


class CachingAllocator:
    """One device's allocator.

    Attributes:
        allocated: bytes given out (`memory_allocated`).
        active: bytes given out, and those freed that another stream still uses.
        reserved: bytes of all segments (`memory_reserved`).
    """

    def __init__(self, settings: AllocatorSettings | None = None) -> None:
        self.settings = settings or AllocatorSettings()
        self.allocated, self.active, self.reserved = (Gauge() for _ in range(3))
        self._pools = (Pool(is_small=True), Pool(is_small=False))
        self._blocks: set[Block] = set()
        self._events: dict[int, deque[Block]] = {}
        self._num_passed: dict[int, int] = {}
        self._next_address = 0

    def allocate(self, num_bytes: int, stream: int = 0) -> Block:
        """Give out a block (`malloc`, `alloc_found_block`).

        Raises:
            OutOfMemoryError: nothing fits, also after unused segments were released.
        """
        self._process_events()
        size = block_bytes(num_bytes)
        pool = self._pools[0] if size <= SMALL_BYTES else self._pools[1]
        block = self._free_block(pool, size, stream) or self._block_of_new_segment(
            pool, size, stream
        )
        if self._splits(block, size):
            self._split(block, size)
        block.allocated = True
        self.allocated.add(block.size)
        self.active.add(block.size)
        return block

    def free(self, block: Block) -> None:
        """Take a block back (`free`); it waits for other streams that used it."""
        block.allocated = False
        self.allocated.add(-block.size)
        if not block.uses:
            self._give_back(block)
        for stream in sorted(block.uses):  # `insert_events`
            block.num_events += 1
            self._events.setdefault(stream, deque()).append(block)
        block.uses = set()

    def record_use(self, block: Block, stream: int) -> None:
        """Note that work on another stream uses the block (`recordStream`)."""
        if stream != block.stream:
            block.uses.add(stream)

    def pass_events(self, stream: int, num_events: int | None = None) -> None:
        """Note that a stream has done work; the next request finds that out.

        Args:
            stream: which.
            num_events: how many more of its blocks are done with; by default all.
        """
        total = len(self._events.get(stream, ()))
        more = total if num_events is None else self._num_passed.get(stream, 0) + num_events
        self._num_passed[stream] = min(total, more)

    def empty_cache(self) -> None:
        """Return what no block uses to the driver (`emptyCache`, `release_cached_blocks`)."""
        for stream in self._events:
            self.pass_events(stream)
        self._process_events()  # `synchronize_and_free_events`
        for pool in reversed(self._pools):
            self._release_unused(pool)

    def segments(self) -> list[list[Block]]:
        """All blocks, segment by segment, in the order of their addresses."""
        heads = [block for block in self._blocks if block.previous is None]
        return [list(_chain(head)) for head in sorted(heads, key=lambda head: head.address)]

    def _process_events(self) -> None:
        """Give back what other streams have done with (`process_events`)."""
        for stream, num_passed in self._num_passed.items():
            for _ in range(num_passed):
                block = self._events[stream].popleft()
                block.num_events -= 1
                if block.num_events == 0:
                    self._give_back(block)
        self._num_passed.clear()

    def _free_block(self, pool: Pool, size: int, stream: int) -> Block | None:
        """The best fit: the smallest free block that is large enough (`get_free_block`)."""
        index = bisect_left(pool.free, (stream, size))
        block = pool.at(index, stream)
        if block is None:
            return None
        if block.page:
            # Its size is the one to which it can grow, so a larger block may be the better fit.
            following = pool.at(index + 1, stream)
            while following is not None and _growable(following) < _growable(block):
                index, block = index + 1, following
                following = pool.at(index + 1, stream)
        pool.remove(block)
        return block

    def _block_of_new_segment(self, pool: Pool, size: int, stream: int) -> Block:
        """A block of new memory, after releasing what is unused where it is refused (`malloc`)."""
        block = self._new_memory(pool, size, stream)
        if block is None:
            self.empty_cache()
            block = self._new_memory(pool, size, stream)
        if block is None:
            raise OutOfMemoryError
        return block

    def _new_memory(self, pool: Pool, size: int, stream: int) -> Block | None:
        """A segment, or more of an expandable one; None where it is refused (`alloc_block`)."""
        segment, allowed = segment_bytes(size), self.settings.allowed_bytes
        if allowed is not None and self.reserved.now + segment > allowed:
            return None
        if self.settings.expandable_segments:
            return self._expanded(pool, size, stream)
        self.reserved.add(segment)
        return self._new_block(self._addresses(segment), segment, stream, pool)

    def _addresses(self, size: int) -> int:
        start, self._next_address = self._next_address, self._next_address + size
        return start

    def _new_block(
        self,
        address: int,
        size: int,
        stream: int,
        pool: Pool,
        *,
        page: int = 0,
        mapped: bool = True,
    ) -> Block:
        block = Block(address, size, stream, pool, page=page, mapped=mapped)
        self._blocks.add(block)
        return block

    def _splits(self, block: Block, size: int) -> bool:
        """True where the rest of a block is kept for others (`should_split`)."""
        rest = block.size - size
        if block.pool.is_small or self.settings.expandable_segments:
            return rest >= BLOCK_BYTES
        return rest > SMALL_BYTES

    def _split(self, block: Block, size: int) -> None:
        """Cut the end off a block; it is free."""
        rest = self._new_block(
            block.address + size, block.size - size, block.stream, block.pool, page=block.page
        )
        rest.link(block, block.next)
        block.size = size
        block.pool.add(rest)

    def _give_back(self, block: Block) -> None:
        """Merge a block with free neighbours, and keep it (`free_block`)."""
        self.active.add(-block.size)
        self._merge(block)
        block.pool.add(block)

    def _merge(self, block: Block) -> None:
        """Join a block with available neighbours of its kind (`try_merge_blocks`)."""
        for other in (block.previous, block.next):
            if other is None or not other.is_available or other.mapped != block.mapped:
                continue
            other.pool.remove(other)
            self._blocks.remove(other)
            if other is block.previous:
                block.address = other.address
                block.link(other.previous, block.next)
            else:
                block.link(block.previous, other.next)
            block.size += other.size

    def _release(self, block: Block) -> None:
        """Return a whole segment to the driver (`release_block`)."""
        block.pool.remove(block)
        self._blocks.remove(block)
        self.reserved.add(-block.size)

    def _release_unused(self, pool: Pool) -> None:
        """Return every segment that is one free block, and every unused page (`release_blocks`)."""
        for _, _, _, block in list(pool.free):
            if block.page:
                self._unmap(block)
            elif not block.is_split:
                self._release(block)

    def _expanded(self, pool: Pool, size: int, stream: int) -> Block:
        """A block in an expandable segment, for which it gets more pages.

        That is `try_allocate_expandable_block`.
        """
        block = self._expandable(pool, size, stream)
        if not block.mapped:
            self._map(block, min(block.size, size))
        while block.size < size:
            following = block.next
            assert following is not None  # `_expandable` has looked
            self._map(following, min(size - block.size, following.size))
            block = following  # it has taken the block before it in
        pool.remove(block)
        return block

    def _expandable(self, pool: Pool, size: int, stream: int) -> Block:
        """The lowest addresses with room for a block, of a new segment where none has any.

        That is `find_expandable_block`.
        """
        for index in range(bisect_left(pool.unmapped, (stream,)), len(pool.unmapped)):
            if pool.unmapped[index][0] != stream:
                break
            block = pool.unmapped[index][2]
            if block.previous is not None and block.previous.is_available:
                block = block.previous
            if _room(block, size) >= size:
                return block
        page = SMALL_SEGMENT_BYTES if pool.is_small else LARGE_SEGMENT_BYTES
        start = self._addresses(_ENDLESS)
        block = self._new_block(start, _ENDLESS, stream, pool, page=page, mapped=False)
        pool.add(block)
        return block

    def _map(self, block: Block, size: int) -> None:
        """Give pages to the first addresses of a block, which is then free (`map_block`)."""
        size = rounded(size, block.page)
        block.pool.remove(block)
        block.mapped = True
        if size < block.size:
            rest = self._new_block(
                block.address + size,
                block.size - size,
                block.stream,
                block.pool,
                page=block.page,
                mapped=False,
            )
            rest.link(block, block.next)
            block.size = size
            block.pool.add(rest)
        self._merge(block)
        block.pool.add(block)
        self.reserved.add(size)

    def _unmap(self, block: Block) -> None:
        """Return the whole pages of a free block (`unmap_block`, `release_expandable_segment`)."""
        start = rounded(block.address, block.page)
        end = (block.address + block.size) // block.page * block.page
        if start >= end:
            return
        block.pool.remove(block)
        before, after = start - block.address, block.address + block.size - end
        if before:
            self._piece(block, block.address, before).link(block.previous, block)
        if after:
            self._piece(block, end, after).link(block, block.next)
        block.address, block.size, block.mapped = start, end - start, False
        self.reserved.add(start - end)
        self._merge(block)
        block.pool.add(block)
        if not block.is_split:
            block.pool.remove(block)
            self._blocks.remove(block)

    def _piece(self, block: Block, address: int, size: int) -> Block:
        piece = self._new_block(address, size, block.stream, block.pool, page=block.page)
        block.pool.add(piece)
        return piece


def _chain(block: Block | None) -> Iterator[Block]:
    while block is not None:
        yield block
        block = block.next


def _growable(block: Block) -> int:
    """The size that a free block of an expandable segment can have."""
    following = block.next
    return block.size + (following.size if following and not following.mapped else 0)


def _room(block: Block, size: int) -> int:
    """Addresses from a block on that are free or without memory, up to the size."""
    found = 0
    for one in _chain(block):
        if found >= size or not one.is_available:
            break
        found += one.size
    return found
