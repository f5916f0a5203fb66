"""The allocator of an accelerator: the peak that it counted, and a budget of requested bytes.

In: `runners.core.system.accelerator`, which reads torch's caching allocator. Out: `AllocatorPeak`,
against which the memory meter is checked as it is against the kernel's mark on CPU; and
`AllocatorLimit`, which refuses what goes beyond a budget.

The budget counts *requested* bytes. `torch.cuda.set_per_process_memory_fraction` would limit
*reserved* ones, and how many of these a run needs depends on what the allocator keeps, not on the
tensors: it takes segments of 2 MiB for blocks of up to 1 MiB, of 20 MiB for blocks of less than
10 MiB, and multiples of 2 MiB for larger ones, and reuses a segment only for its own kind of block
(c10/cuda/CUDACachingAllocator.cpp of torch: kSmallBuffer, kLargeBuffer, kRoundLarge). One block in
each segment keeps it whole, so no factor of the budget bounds the reserved bytes of a run that
fits. *Allocated* bytes are those of whole blocks, which may be larger than what was requested.
"""

import torch

from proofbook.runners.core.meters.kernel import TOLERANCE_SHARE, MeterDisagreesError
from proofbook.runners.core.meters.refusal import Limit
from proofbook.runners.core.system import accelerator
from proofbook.runners.core.trace.measured import AllocatorMemory, Memory

BLOCK_BYTES = 512  # the allocator rounds each block up to a multiple of it


class AllocatorPeak:
    """The peak of requested bytes above what was held at the start, on one accelerator.

    Args:
        device: the accelerator.
        counts_workspaces: workspaces of cuBLAS lie in the same memory as tensors. True frees them
            at the start, so that those which the pass takes lie in the peak and are counted at its
            end; False keeps those of the warm-up below the start, as under a budget.
    """

    def __init__(self, device: torch.device, *, counts_workspaces: bool) -> None:
        self._device = device
        self._counts_workspaces = counts_workspaces
        if counts_workspaces:
            accelerator.free_workspaces(device)
        accelerator.reset_peak(device)
        self._start = accelerator.allocated(device).now_bytes
        self._held = self._held_at_start = accelerator.held_bytes(device)

    @property
    def held_bytes(self) -> int:
        """The most bytes held between two operations, without temporaries of an operation."""
        return self._held - self._held_at_start

    def update(self) -> None:
        """Update `held_bytes` after an operation."""
        if accelerator.allocated(self._device).now_bytes > self._held:
            self._held = max(self._held, accelerator.held_bytes(self._device))

    def read(self, host_peak_bytes: int | None = None) -> AllocatorMemory:
        """An `AllocatorMemory`: bytes of the peak above the start, rounding, workspaces (freed)."""
        peak = accelerator.allocated(self._device)
        counted = self._counts_workspaces
        return AllocatorMemory(
            peak_bytes=peak.peak_bytes - self._start,
            workspace_bytes=accelerator.free_workspaces(self._device) if counted else 0,
            rounding_bytes=BLOCK_BYTES * peak.num_blocks_at_most,
            host_peak_bytes=host_peak_bytes,
        )


def with_allocator(memory: Memory, allocator: AllocatorMemory, held_bytes: int) -> Memory:
    """A copy of `memory` with `allocator`; the meter's peak is checked against `held_bytes`.

    The allocator's peak also holds what an operation takes and gives back within itself, which no
    meter of tensors sees; `held_bytes` are the most held between operations, on the device alone.
    MeterDisagreesError where these are more than tensors, workspaces and rounding explain, or less
    than the tensors.
    """
    assert memory.peak_bytes is not None
    allowed = TOLERANCE_SHARE * memory.peak_bytes + allocator.rounding_bytes
    above = held_bytes - memory.peak_bytes
    if not -allowed <= above <= allocator.workspace_bytes + allowed:
        raise MeterDisagreesError(
            f"meter {memory.peak_bytes} bytes, allocator {held_bytes} between operations and "
            f"{allocator.peak_bytes} at most, of which {allocator.workspace_bytes} are cuBLAS "
            f"workspaces: more than {allowed:.0f} bytes apart "
            f"(the meter's peak lies in {memory.peak_phase})"
        )
    return memory.model_copy(update={"allocator": allocator})


class AllocatorLimit(Limit):
    """Raises `torch.OutOfMemoryError` where more than the budget has been requested.

    It looks after each operation at the allocator's peak since the limit was set, so that memory
    which an operation takes and returns within itself counts as well. `enforce` looks once more
    where no operation follows.
    """

    def __init__(self, budget_bytes: int, device: torch.device) -> None:
        super().__init__()
        self._budget_bytes = budget_bytes
        self._device = device
        accelerator.reset_peak(device)
        self._start = self._before = accelerator.allocated(device).now_bytes

    def held_bytes(self) -> int:
        """Bytes requested since the limit was set, before this operation."""
        return self._before - self._start

    def enforce(self) -> None:
        """Raise OutOfMemoryError, with the bytes held before noted, if the peak is over budget."""
        memory = accelerator.allocated(self._device)
        if memory.peak_bytes - self._start > self._budget_bytes:
            error = torch.OutOfMemoryError(
                f"out of memory: tried to allocate {memory.peak_bytes - self._before} bytes beside "
                f"{self.held_bytes()} under a budget of {self._budget_bytes}"
            )
            self.note(error)
            raise error
        self._before = memory.now_bytes
