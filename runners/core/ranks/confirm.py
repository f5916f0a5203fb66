"""Confirm the memory meter: call a strategy again where meter and kernel differ.

In: a rank whose metered pass has ended. Out: nothing, or a `MeterDisagreesError`, which fails the
run. Most passes need no further call, because what `meters/kernel.py` measures explains the mark.
"""

import gc
from contextlib import redirect_stdout
from io import StringIO

import torch
import torch.distributed as dist

from proofbook.runners.core.declared.experiment import Strategy
from proofbook.runners.core.meters.kernel import KernelPeak, MeterDisagreesError, return_free_heap
from proofbook.runners.core.ranks.rank import Rank

MOST_FURTHER_CALLS = 3


def _max_over_ranks(rank: Rank, *values: int) -> list[int]:
    """The maximum of each value over the ranks of the group."""
    if rank.world_size == 1 or not dist.is_initialized():
        return list(values)
    tensor = torch.tensor(values, device=rank.device)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return [int(value) for value in tensor.tolist()]


def _scratch_bytes(rank: Rank, num_bytes: int) -> int:
    """Scratch memory of the backend in two collectives of this size at once, as gloo runs them."""
    if rank.world_size == 1 or not dist.is_initialized() or not num_bytes:
        return 0
    tensors = [torch.ones(num_bytes, dtype=torch.uint8) for _ in range(2)]
    peak = KernelPeak()
    for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
        work.wait()
    return peak.bytes() or 0


def confirm_memory(rank: Rank, strategy: Strategy) -> None:
    """Call the strategy again while meter and kernel differ; MeterDisagreesError if they always do.

    The first call loaded modules, started threads and created workspaces, which the mark counts and
    no tensor holds. A further call finds them there, in the same process, so what the kernel then
    counts beyond the meter is memory that the meter misses. Missed tensors are missed in each call,
    while a thread or the heap grows in some calls only. Results stay those of the first call.
    """
    if not rank.is_metered or rank.has_lost_peers:
        return
    differs, largest = _max_over_ranks(
        rank, int(rank.memory_fault is not None), rank.largest_collective_bytes
    )
    scratch_bytes = _scratch_bytes(rank, largest) if differs else 0
    fault = rank.memory_fault
    for _ in range(MOST_FURTHER_CALLS if differs else 0):
        again = _call_again(rank, strategy, scratch_bytes)  # by all ranks: it communicates
        fault = fault and again.memory_fault
        if not _max_over_ranks(rank, int(fault is not None))[0]:
            return
    if fault:
        raise MeterDisagreesError(f"{fault}, in {1 + MOST_FURTHER_CALLS} calls of the strategy")


def _call_again(rank: Rank, strategy: Strategy, scratch_bytes: int) -> Rank:
    """Call the strategy under the meters of a new rank, which is returned."""
    again = rank.restarted()
    again.scratch_bytes = scratch_bytes
    gc.collect()
    return_free_heap()
    torch.manual_seed(rank.seed)
    again.start_memory()
    try:
        with redirect_stdout(StringIO()):  # what rank 0 prints is that of the first call, too
            strategy(again)
        again.finish()
    finally:
        rank.phase_name, rank.step_index = again.phase_name, again.step_index
        rank.is_stepping = again.is_stepping
    return again
