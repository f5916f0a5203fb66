"""The peak of ranks whose threads of gloo get few turns, beside processes that are busy."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from proofbook.runners.core.system.gloo_threads import RUN_LOOP
from tests.judged import judged, peaks_of

pytestmark = [pytest.mark.soak, pytest.mark.ranks]
BUFFER_BYTES = 4 * 1024


def reduced(rank):
    """Makes a buffer, reduces it, frees it, five times; threads of gloo get few turns.

    Two buffers are never needed at once: where the peak is that of two, one was freed late.
    """
    for thread in Path("/proc/self/task").iterdir():
        is_own = int(thread.name) == threading.get_native_id()
        if not is_own and (thread / "comm").read_text(encoding="ascii").strip() == RUN_LOOP:
            os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))
    for _ in range(5):
        buffer = torch.ones(BUFFER_BYTES // 4)
        dist.all_reduce(buffer)
        del buffer


def test_a_peak_holds_no_buffer_that_a_thread_had_no_turn_to_free():
    """The threads of gloo get a turn only when nothing else wants one, and much else does."""
    busy = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(4)]
    try:
        seen = judged(reduced, 2, quiet_seconds=60)
    finally:
        for one in busy:
            one.kill()
            one.wait()
    assert peaks_of(seen) == [BUFFER_BYTES] * 2
