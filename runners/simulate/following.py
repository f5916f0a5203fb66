"""Lets a timeline know of what no operation shows: waits for communication, and sleep.

In: the timeline of a rank that is simulated in this process. Out: a context in which it hears of
waits, sleep and the end of DDP's backward pass, and in which a single fake value is printed as the
number that it gives.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

from torch._C._distributed_c10d import FakeWork
from torch._subclasses.fake_tensor import FakeTensor

from runners.simulate.reducer import Reducer
from runners.simulate.timeline import Timeline

_TICK_SECONDS = 1e-7  # every wait for the clock ends


@contextmanager
def following(timeline: Callable[[], Timeline]) -> Iterator[None]:
    """Tell a timeline; the clock goes on by what is slept.

    So who wakes at a set time sleeps as long as it says.

    Args:
        timeline: the present one of the rank.
    """
    passed = [0.0]

    def slept(seconds: float) -> None:
        passed[0] += seconds
        timeline().sleep(seconds)

    def clock() -> float:
        passed[0] += _TICK_SECONDS
        return passed[0]

    def telling(owner: Any, name: str, tell: Callable[[], None]) -> Any:
        own = getattr(owner, name)

        @wraps(own)
        def told(*arguments: Any, **named: Any) -> Any:
            tell()
            return own(*arguments, **named)

        return patch.object(owner, name, told)

    with ExitStack() as stack:
        stack.enter_context(patch.object(time, "sleep", slept))
        stack.enter_context(patch.object(time, "perf_counter", clock))
        stack.enter_context(patch.object(FakeTensor, "__format__", formatted))
        stack.enter_context(telling(FakeWork, "wait", lambda: timeline().wait()))
        stack.enter_context(telling(Reducer, "_finish", lambda: timeline().wait_for_all()))
        yield


def formatted(tensor: FakeTensor, specification: str) -> str:
    """Stands for `FakeTensor.__format__`: a single value is printed as the number it gives."""
    if tensor.dim():
        return object.__format__(tensor, "")
    return format(tensor.item(), specification)
