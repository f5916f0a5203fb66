"""How much memory a step touches for the first time, by the rules of the C library's allocator.

In: allocations and frees, in their order. Out: bytes of pages that the kernel has to clear while
the counted step runs. glibc takes a block beyond a threshold from the kernel alone, and gives it
back as it is freed; the threshold then rises to the size of that block, up to 32 MiB. Smaller
blocks come from a heap, whose free end goes back once it is twice the threshold (`mallopt(3)`,
`M_MMAP_THRESHOLD` and `M_TRIM_THRESHOLD`). The heap is taken to be a stack without holes. A block
at its end that stays keeps a real one from being trimmed, so that this is the most.
"""

from __future__ import annotations

from collections.abc import Iterable

LEAST_THRESHOLD, MOST_THRESHOLD = 128 << 10, 32 << 20


class Heap:
    """Counts what is touched for the first time."""

    def __init__(self) -> None:
        self.touched_bytes = 0
        self._threshold = LEAST_THRESHOLD
        self._used = self._touched = 0  # of the heap
        self._mapped: dict[int, int] = {}  # blocks with pages of their own
        self._sizes: dict[int, int] = {}  # blocks of the heap

    def change(self, key: int, num_bytes: int) -> None:
        """A block changes its size by so many bytes."""
        before = self._mapped.get(key, 0) + self._sizes.get(key, 0)
        if before:
            self._free(key)
        if before + num_bytes > 0:
            self._allocate(key, before + num_bytes)

    def _allocate(self, key: int, num_bytes: int) -> None:
        if num_bytes > self._threshold:
            self._mapped[key] = num_bytes
            self.touched_bytes += num_bytes
            return
        self._sizes[key] = num_bytes
        self._used += num_bytes
        self.touched_bytes += max(0, self._used - self._touched)
        self._touched = max(self._used, self._touched)

    def _free(self, key: int) -> None:
        if key in self._mapped:
            num_bytes = self._mapped.pop(key)
            if num_bytes <= MOST_THRESHOLD:
                self._threshold = max(self._threshold, num_bytes)
            return
        self._used -= self._sizes.pop(key)
        if self._touched - self._used > 2 * self._threshold:
            self._touched = self._used


def touched_bytes(log: Iterable[tuple[str, int, int]], counted_from: int) -> int:
    """Bytes first touched after so many entries of the meter's log (phase, block, change)."""
    heap, before = Heap(), 0
    for index, (_, key, change) in enumerate(log):
        if index == counted_from:
            before = heap.touched_bytes
        if change:
            heap.change(key, change)
    return heap.touched_bytes - before
