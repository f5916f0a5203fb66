"""How the values of a column were found, and so what the column is called.

In: values as a table shows them. Out: `measured`, `counted` or `simulated` for what was read off a
run, also where it is the largest or the sum over ranks; `from_measured` and `from_counted` for what
arithmetic made of that. What was given decides nothing, because a formula only scales by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from generator.evidence.value import Value

Way = Literal["measured", "counted", "simulated", "from_measured", "from_counted"]
WAYS: tuple[Way, ...] = get_args(Way)
# Payloads, their calls, and what is called a number; peaks and times are measured.
_COUNTED = re.compile(r"\bcollectives\[|\bfacts\.bytes\b|\bnum_\w+$|\bmeasures\.\w+_bytes$")


def found_by(value: Value) -> Way:
    """How a value was found."""
    if any(one.kind == "simulated" for one in value.leaves):
        return "simulated"
    read = value.decided_by
    is_counted = bool(read) and all(_COUNTED.search(one.field) for one in read)
    if value.is_arithmetic:
        return "from_counted" if is_counted else "from_measured"
    return "counted" if is_counted else "measured"


def heading(values: Iterable[Value | None], words: Mapping[str, str]) -> str:
    """What a column of values is called, by every way in which one of them was found.

    Args:
        values: those of the column; None where this machine has none.
        words: of the interface, by the way.
    """
    found = {found_by(one) for one in values if one is not None} or {"measured"}
    named = [words[way] for way in WAYS if way in found]
    before, last = ", ".join(named[:-1]), named[-1]
    return f"{before} or {last}".capitalize() if before else last
