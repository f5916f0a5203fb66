"""Pages printed on all cores: sheets in, printed pages or their mistakes out, in the same order.

Each process is forked from this one, with the book and its evidence as they are, and prints some of
the sheets. What it has evaluated ends with it, so this is for building and not for serving.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from generator.content.errors import ContentError, ContentErrors
from generator.pages.page import Judged, Printed, Sheet, printed

FEWEST = 24  # sheets that are worth a second process
AT_A_TIME = 4  # that a process takes: those of a topic share values
_Found = Printed | ContentErrors
_Told = Printed | list[tuple[str, int, int, str]]
_shared: tuple[Sequence[Sheet], Judged] | None = None  # what forked processes see


def every_core() -> int:
    """How many processes this one may keep busy; one where none can be forked."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def print_all(sheets: Sequence[Sheet], judged: Judged, num_processes: int) -> list[_Found]:
    """Each sheet as a page, or as the mistakes for which there is none."""
    global _shared  # noqa: PLW0603 - a forked process knows nothing else
    if num_processes < 2 or len(sheets) < FEWEST:
        return [_tried(sheet, judged) for sheet in sheets]
    _shared = (sheets, judged)
    try:
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(num_processes, mp_context=context) as pool:
            told = pool.map(_of_shared, range(len(sheets)), chunksize=AT_A_TIME)
            return [_heard(one) for one in told]
    finally:
        _shared = None


def _tried(sheet: Sheet, judged: Judged) -> _Found:
    try:
        return printed(sheet, judged)
    except ContentErrors as found:
        return found


def _of_shared(place: int) -> _Told:
    """A page as another process can take it: errors are told by their parts."""
    assert _shared is not None
    sheets, judged = _shared
    found = _tried(sheets[place], judged)
    return found if isinstance(found, Printed) else [one.key for one in found.errors]


def _heard(told: _Told) -> _Found:
    return told if isinstance(told, Printed) else ContentErrors(ContentError(*key) for key in told)
