"""A book's tasks, checks and pages, done on all cores: what each found, in the order of the tasks.

Each process is forked from this one, with the book and its evidence as they are, and does some of
the tasks. What it has evaluated ends with it.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor

from generator.content.errors import ContentError, ContentErrors
from generator.pages.page import Gathered, Judged, Printed, Sheet, printed
from runners.system import count

FEWEST = 24  # tasks that are worth a second process
AT_A_TIME = 4  # that a process takes: those of a topic share values
Found = Printed | list[ContentError]
Task = Callable[[], Printed | Iterable[ContentError]]
_shared: Sequence[Task] = ()  # what forked processes see


def every_core() -> int:
    """How many processes this one may keep busy; one where none can be forked."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def done(tasks: Sequence[Task], num_processes: int) -> Generator[Found, None, None]:
    """What each task finds; tasks that the caller no longer asks for stay undone."""
    global _shared  # noqa: PLW0603 - a forked process knows nothing else
    _shared = tasks
    if num_processes < 2 or len(tasks) < FEWEST:
        yield from map(_found, range(len(tasks)))
        return
    fork = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(num_processes, fork, _end_with, (os.getpid(),))
    progress = count.Count(len(tasks), "pages and checks done")
    try:
        for at, found in enumerate(pool.map(_found, range(len(tasks)), chunksize=AT_A_TIME)):
            progress.tell(at)
            yield found
    finally:
        progress.end()
        pool.shutdown(cancel_futures=True)


def _end_with(starter: int) -> None:
    """End this process with the one that started it, which a signal may kill without a word."""

    def watch() -> None:
        while os.getppid() == starter:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def page(sheet: Sheet, judged: Judged, gathered: Gathered) -> Found:
    """A sheet as a page, or as the mistakes for which there is none."""
    try:
        return printed(sheet, judged, gathered)
    except ContentErrors as found:
        return found.errors


def _found(place: int) -> Found:
    found = _shared[place]()
    return found if isinstance(found, Printed) else list(found)
