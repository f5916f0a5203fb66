"""Waiting for gloo's threads, against threads of that name that work and then sleep."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from proofbook.runners.core.system import gloo_threads
from proofbook.runners.core.system.gloo_threads import RUN_LOOP, wait_until_idle
from tests.judged import judged, peaks_of

BUFFER_BYTES = 4 * 1024


def _task(process, number, name, state):
    stat = process / "task" / str(number) / "stat"
    stat.parent.mkdir(parents=True, exist_ok=True)
    stat.write_text(f"{number} ({name}) {state} 1 1 0\n")
    return stat


def test_it_waits_for_a_thread_of_gloo_that_has_not_had_its_turn(tmp_path, monkeypatch):
    _task(tmp_path, 1, RUN_LOOP, "R")
    _task(tmp_path, 2, "python", "R")  # the rank itself
    looks = []

    def look_again(seconds):
        looks.append(seconds)
        if len(looks) == 3:
            _task(tmp_path, 1, RUN_LOOP, "S")

    monkeypatch.setattr(gloo_threads.time, "sleep", look_again)
    wait_until_idle(tmp_path)
    assert len(looks) == 3


def test_files_of_threads_that_ended_are_closed_and_all_with_the_last_look(tmp_path):
    def num_open():
        return sum("/task/" in str(file.resolve()) for file in Path("/proc/self/fd").iterdir())

    before = num_open()
    first, _ = _task(tmp_path, 1, RUN_LOOP, "S"), _task(tmp_path, 2, RUN_LOOP, "S")
    threads = gloo_threads.GlooThreads(tmp_path)
    threads.refresh()
    assert num_open() == before + 2
    shutil.rmtree(first.parent)
    threads.refresh()
    assert num_open() == before + 1
    del threads
    assert num_open() == before


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


@pytest.mark.ranks
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
