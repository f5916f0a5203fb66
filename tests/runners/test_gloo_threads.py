"""Waiting for gloo's threads, against threads of that name that work and then sleep.

`make soak` meters ranks beside busy processes.
"""

import shutil
from pathlib import Path

from proofbook.runners.core.system import gloo_threads
from proofbook.runners.core.system.gloo_threads import RUN_LOOP, wait_until_idle


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
