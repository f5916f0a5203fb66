"""Ranks that reduce one buffer after another, with threads of gloo that get few turns.

Two buffers are never needed at once: where the peak is that of two, one was freed late.
"""

import os
import threading
from pathlib import Path

import torch
import torch.distributed as dist

from runners.declared.experiment import Declaration
from runners.meters.gloo_threads import NAME

QUESTION = "Does a peak depend on when gloo's threads get a turn?"
NUM_BUFFERS = 5
BUFFER_BYTES = 4 * 1024


def reduced(rank):
    """Makes a buffer, reduces it, frees it; five times a step."""
    dist.barrier()
    for thread in Path("/proc/self/task").iterdir():
        is_own = int(thread.name) == threading.get_native_id()
        if not is_own and (thread / "comm").read_text(encoding="ascii").strip() == NAME:
            os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))
    for _ in rank.steps(1):
        with rank.phase("all_reduce"):
            for _ in range(NUM_BUFFERS):
                buffer = torch.ones(BUFFER_BYTES // 4)
                dist.all_reduce(buffer)
                del buffer


RUNS = {"reduced": Declaration("reduced", 2, passes=("metered",))}
