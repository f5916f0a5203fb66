"""A model of CUDA's caching allocator: what it reserves for the blocks that it gives out.

The rules are those of c10/cuda/CUDACachingAllocator.cpp of torch 2.13 with its usual settings:
sizes round up to 512 bytes; up to 1 MiB they come from segments of 2 MiB, else below 10 MiB from
segments of 20 MiB, else from a segment of their own, rounded up to 2 MiB; the best fit is split,
and neighbours that are free merge, within their segment.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MIB = 1 << 20


def rounded(size: int, unit: int) -> int:
    """A size as a whole number of units."""
    return -(-size // unit) * unit


@dataclass
class Segment:
    """What one cudaMalloc gave: free stretches as (start, size), in order."""

    is_small: bool
    size: int
    free: list[tuple[int, int]]

    def take(self, start: int, size: int) -> None:
        """Cut a block off a free stretch; a rest too small for its pool stays with the block."""
        index = next(i for i, stretch in enumerate(self.free) if stretch[0] == start)
        rest = self.free[index][1] - size
        self.free[index : index + 1] = [(start + size, rest)] if rest else []

    def give(self, start: int, size: int) -> None:
        """Take a block back and merge it with its neighbours."""
        merged: list[tuple[int, int]] = []
        for at, length in sorted([*self.free, (start, size)]):
            if merged and sum(merged[-1]) == at:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((at, length))
        self.free = merged


@dataclass
class CachingAllocator:
    """Segments, and the blocks in use by their number."""

    segments: list[Segment] = field(default_factory=list)
    blocks: dict[int, tuple[Segment, int, int]] = field(default_factory=dict)
    allocated: int = 0
    peak: int = 0
    num_taken: int = 0

    @property
    def reserved(self) -> int:
        """Bytes of all segments: what a memory fraction limits."""
        return sum(segment.size for segment in self.segments)

    def allocate(self, size: int) -> int:
        """Give out a block; its number."""
        size = rounded(max(size, 1), 512)
        is_small = size <= MIB
        fits = [
            (length, index, start)
            for index, segment in enumerate(self.segments)
            if segment.is_small == is_small
            for start, length in segment.free
            if length >= size
        ]
        if fits:
            length, index, start = min(fits)
            segment = self.segments[index]
        else:
            length = (
                2 * MIB if is_small else 20 * MIB if size < 10 * MIB else rounded(size, 2 * MIB)
            )
            segment, start = Segment(is_small, length, [(0, length)]), 0
            self.segments.append(segment)
        splits = length - size >= 512 if is_small else length - size > MIB
        taken = size if splits else length
        segment.take(start, taken)
        self.num_taken += 1
        self.blocks[self.num_taken] = (segment, start, taken)
        self.allocated += taken
        self.peak = max(self.peak, self.allocated)
        return self.num_taken

    def free(self, number: int) -> None:
        """Take a block back; its segment stays reserved."""
        segment, start, size = self.blocks.pop(number)
        segment.give(start, size)
        self.allocated -= size
