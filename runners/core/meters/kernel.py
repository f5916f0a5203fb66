"""The kernel's own account of a rank's memory, and whether the memory meter agrees with it. Linux.

In: `/proc/self/status` and the allocator's statistics. Out: a `Growth`, which `disagreement`
compares with what the meter recorded of the same stretch.

The kernel's high-water mark holds more than tensors. No constant says how much, because it differs
by Python, by torch and by strategy; so each part is measured:

- Pages of files (code, mostly) are told apart by the kernel itself.
- Heap that was freed and not returned is told by the allocator. A tensor that somebody holds is
  in use, so it never counts as free.
- Objects and workspaces that a process creates once: where the first call of a strategy leaves a
  remainder, `runners/core/ranks/confirm.py` calls the strategy again in the same process.
  The first call was then the warm-up, and it touched exactly what a further call touches.
- Scratch memory of the backend is measured beforehand, by collectives of the same size.
"""

import ctypes
import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proofbook.runners.core.trace.measured import Memory

TOLERANCE_SHARE = 0.02
_REFUSE_HUGE_PAGES = 41  # of prctl
BLOCK_PAGES = 2  # a block of its own begins with the allocator's header and ends within a page
# The kernel adds a processor's pages to the mark 32 at a time (`percpu_counter`), and the thread
# that fills tensors is on one or two: right after a reset, the mark stood 34 pages off.
MARK_PAGES = 64


class MeterDisagreesError(RuntimeError):
    """The meter and the kernel differ by more than the parts that were measured."""


class _MallocStatistics(ctypes.Structure):
    """What glibc's `mallinfo2` returns, in bytes; the eighth is what somebody holds."""

    _fields_ = [(f"field{number}", ctypes.c_size_t) for number in range(10)]


_LIBC = ctypes.CDLL(None)
KNOWS_FREE_HEAP = hasattr(_LIBC, "mallinfo2")  # glibc does from version 2.33 on
if KNOWS_FREE_HEAP:
    _LIBC.mallinfo2.restype = _MallocStatistics


def _free_heap_bytes() -> int:
    """Resident bytes of the heap that nobody uses; 0 where the allocator does not say."""
    if not KNOWS_FREE_HEAP:
        return 0
    resident, is_heap = 0, False
    # The kernel counts the pages of the mappings that fit into the buffer, so it is a small one.
    with Path("/proc/self/smaps").open("rb", buffering=512) as mappings:
        for line in mappings:
            if line[:1] in b"0123456789abcdef":  # the head of a mapping: addresses, rights, file
                is_heap = line.rstrip().endswith(b"[heap]")
                if resident and not is_heap:
                    break
            elif is_heap and line.startswith(b"Rss:"):
                resident += int(line.split()[1]) * 1024
    return max(0, resident - int(_LIBC.mallinfo2().field7))


def refuse_huge_pages() -> None:
    """Disable huge pages for this process, even where its allocator asks; on Linux alone.

    With them the heap of a small run grows by 2 MiB at a touch, of which the meter explains little.
    """
    _LIBC.prctl(_REFUSE_HUGE_PAGES, 1, 0, 0, 0)


def return_free_heap() -> None:
    """Return free pages of the heap to the kernel, so that it counts them again when touched."""
    _LIBC.malloc_trim(0)


def _status_bytes(*fields: str) -> list[int] | None:
    """Fields of /proc/self/status, in bytes; None where the kernel does not tell all of them."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        fields_of = dict(line.split(":", 1) for line in status.splitlines())
        return [int(fields_of[field].split()[0]) * 1024 for field in fields]
    except (OSError, KeyError):
        return None


def heap_bytes() -> int:
    """Bytes of the process's data segment (VmData); 0 where the kernel does not say."""
    return (_status_bytes("VmData") or [0])[0]


@dataclass(frozen=True)
class Growth:
    """Growth of a process over a stretch by the kernel and the allocator, in bytes."""

    peak_bytes: int  # the high-water mark above the resident size at the start
    phase: str  # in which the mark rose for the last time
    file_bytes: int  # pages of files that were touched for the first time
    # Heap that was freed and stays resident, at the end of a phase that raised the mark, beyond
    # `reused_bytes`: the same at the start; a tensor that takes it raises no mark.
    free_bytes: int
    reused_bytes: int


class KernelPeak:
    """The kernel's high-water mark above the resident size at the start."""

    def __init__(self, *, reads_phases: bool = False) -> None:
        """Start; with `reads_phases`, note the heap that is free now, for `end_phase`."""
        self._start: list[int] | None = None
        self._mark = self._free = self._reused = 0
        self._phase = ""
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
            self._start = _status_bytes("VmRSS", "RssFile")
        if reads_phases and self._start is not None:
            self._reused = _free_heap_bytes()

    def bytes(self) -> int | None:
        """The peak since the start, above it; None where the kernel does not say."""
        now = _status_bytes("VmHWM")
        return None if self._start is None or now is None else max(0, now[0] - self._start[0])

    def end_phase(self, phase: str) -> None:
        """Note, at the end of a phase, whether the mark has risen, and how much heap is free."""
        mark = self.bytes() or 0
        if mark > self._mark:
            self._mark, self._phase = mark, phase
            self._free = max(self._free, _free_heap_bytes())

    def growth(self, phase: str) -> Growth | None:
        """End the phase; the Growth since the start, None where the kernel does not say."""
        self.end_phase(phase)
        now = _status_bytes("RssFile")
        if self._start is None or now is None:
            return None
        file_bytes = max(0, now[0] - self._start[1])
        free_bytes = max(0, self._free - self._reused)
        return Growth(self._mark, self._phase, file_bytes, free_bytes, self._reused)


def disagreement(
    memory: Memory, growth: Growth, num_storages: int, scratch_bytes: int = 0
) -> str | None:
    """How meter and kernel differ by more than 2 % and pages allow, as a line; None if they do not.

    `num_storages` were live at once, at most: each is rounded up to pages. `scratch_bytes` were
    measured: those that the backend's collectives took beside their tensors.
    """
    assert memory.peak_bytes is not None
    assert memory.at_peak is not None
    peak = memory.peak_bytes
    rounding = (BLOCK_PAGES * num_storages + MARK_PAGES) * resource.getpagesize()
    within = int(TOLERANCE_SHARE * peak) + rounding
    missed = growth.peak_bytes - peak - growth.file_bytes - growth.free_bytes - scratch_bytes
    # A bucket is allocated whole and touched gradient by gradient: the kernel counts it later.
    invented = peak - growth.peak_bytes - growth.reused_bytes - memory.at_peak.buckets_bytes
    if max(missed, invented) <= within:
        return None
    return (
        f"meter {peak} bytes in {memory.peak_phase}, kernel {growth.peak_bytes} in {growth.phase}; "
        f"allowed: {within} (2 %, pages of {num_storages} storages, {MARK_PAGES} more); "
        f"unexplained: {max(missed, invented)}"
    )
