"""What is made from a record, made once: the same record, read again while serving, is the same.

Records never change, and files whose text stays are read once (`runners.traces.files`). They hold
lists, so no cache can hash them; here they are known by their identity, and kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

RecordT = TypeVar("RecordT")
MadeT = TypeVar("MadeT")
_MADE: dict[tuple[Callable[[Any], Any], int], tuple[object, Any]] = {}


def once(make: Callable[[RecordT], MadeT], record: RecordT) -> MadeT:
    """What a function makes from a record.

    Args:
        make: depends on the record alone, or on what stays while the process lives.
        record: as it was read.
    """
    known = _MADE.get((make, id(record)))
    if known is None or known[0] is not record:
        known = _MADE[make, id(record)] = (record, make(record))
    made: MadeT = known[1]
    return made
