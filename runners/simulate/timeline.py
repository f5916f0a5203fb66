"""What a rank does one after another in the counted step, and how the ranks' steps fit together.

In: what the meter of a simulation sees, the waits for communication, and `time.sleep`. Out: a list
of `Moment`. `replay` then takes the moments of all ranks and how long each lasts, and gives when
each rank ends its step: ranks compute, begin collectives and messages, and wait for them in the
order in which their simulations did.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from runners.meters.collectives import OPERATIONS, ends_of, payload_bytes
from runners.simulate.log import Moment

MESSAGES = ("send", "recv")


class Timeline:
    """Collects moments; it is told what happens, and knows no torch state.

    Attributes:
        is_on: whether the counted step is under way.
    """

    def __init__(self) -> None:
        self.is_on = False
        self._moments: list[Moment] = []
        self._phase: str | None = None  # of the stretch of computing that has begun
        self._flops = 0  # of this stretch
        self._number = 0  # of the last call that has begun
        self._has_computed = True  # since it began
        self._under_way: set[int] = set()

    def compute(self, phase: str, flops: int) -> None:
        """An operation has been started."""
        if not self.is_on:
            return
        if phase != self._phase:
            self._close()
        self._has_computed = True
        self._phase, self._flops = phase, self._flops + flops

    def sleep(self, seconds: float) -> None:
        """The rank does nothing for so long."""
        if self.is_on and seconds > 0:
            self._close()
            self._moments.append(Moment(kind="sleep", seconds=round(seconds, 9)))

    def begin(self, name: str, args: Iterable[Any], ranks: Iterable[int]) -> None:
        """A collective or a message begins; `wait` says when it has to be over."""
        operation = "all_reduce" if name == "barrier" else OPERATIONS.get(name)
        if not self.is_on or operation is None:
            return
        self._close()
        self._number += 1
        self._has_computed = False
        self._under_way.add(self._number)
        source, destination = ends_of(name, args) if operation in MESSAGES else (None, None)
        moment = Moment(
            kind="begin",
            call=self._number,
            operation=operation,
            ranks=list(ranks),
            peer=destination if operation == "send" else source,
            bytes=payload_bytes(args),
        )
        self._moments.append(moment)

    def wait(self) -> None:
        """The rank waits for a call: the last one, if it has done nothing since; else the first."""
        if not self.is_on or not self._under_way:
            return
        number = min(self._under_way) if self._has_computed else max(self._under_way)
        self._under_way.remove(number)
        self._close()
        self._moments.append(Moment(kind="wait", call=number))

    def wait_for_all(self) -> None:
        """The rank waits for every call."""
        self._has_computed = True
        while self.is_on and self._under_way:
            self.wait()

    def moments(self) -> list[Moment]:
        """All of them; what is still under way at the end is left to the next step."""
        self._close()
        return self._moments

    def _close(self) -> None:
        if self._phase is not None:
            self._moments.append(Moment(kind="compute", phase=self._phase, flops=self._flops))
        self._phase, self._flops = None, 0


SecondsOf = Callable[[Moment], float]
Name = tuple[object, ...]  # of a collective or a message, as all its ranks call it


def replay(ranks: Sequence[Sequence[Moment]], seconds_of: SecondsOf) -> list[float] | None:
    """When each rank ends its step; None where ranks wait for each other for ever.

    A collective begins when its last rank has come, and those of a group run one after another. A
    message waits for its sender alone, and a sender for nobody.

    Args:
        ranks: the moments of each rank from 0 on; of ranks that are alike, the first alone will do.
        seconds_of: how long a stretch of computing, a collective or a message lasts.
    """
    calls, now = _Calls(len(ranks), seconds_of), [0.0] * len(ranks)
    to_come = [deque(moments) for moments in ranks]
    while any(to_come):
        before = sum(map(len, to_come))
        for rank, moments in enumerate(to_come):
            while moments and (end := calls.end(rank, moments[0], now[rank])) is not None:
                now[rank] = end
                moments.popleft()
        if sum(map(len, to_come)) == before:
            return None
    return now


class _Calls:
    """Which collectives and messages have begun, and when they are over."""

    def __init__(self, num_ranks: int, seconds_of: SecondsOf) -> None:
        self._num_ranks, self._seconds_of = num_ranks, seconds_of
        self._came: defaultdict[Name, list[float]] = defaultdict(list)
        self._over: dict[Name, float] = {}
        self._last: defaultdict[Name, float] = defaultdict(float)  # of a group's collectives
        self._counts: Counter[tuple[int, Name]] = Counter()
        self._begun: dict[tuple[int, int], Name] = {}  # by rank and call

    def end(self, rank: int, moment: Moment, now: float) -> float | None:
        """When a rank gets past a moment; None where it has to wait for other ranks."""
        if moment.kind in ("compute", "sleep"):
            return now + (moment.seconds or self._seconds_of(moment))
        if moment.kind == "begin":
            self._begin(rank, moment, now)
            return now
        name = self._begun.get((rank, moment.call))
        if name is None:
            return now
        return max(now, self._over[name]) if name in self._over else None

    def _begin(self, rank: int, moment: Moment, now: float) -> None:
        if moment.operation in MESSAGES:
            ends = (rank, moment.peer) if moment.operation == "send" else (moment.peer, rank)
            group: Name = ("message", *ends)
        else:
            group = ("collective", *moment.ranks)
        self._counts[rank, group] += 1
        name = (*group, self._counts[rank, group])
        if moment.operation == "send":  # what is sent lies in a buffer, and nobody waits for it
            self._over[name] = now + self._seconds_of(moment)
            return
        self._begun[rank, moment.call] = name
        self._came[name].append(now)
        num_needed = sum(one < self._num_ranks for one in moment.ranks)
        if moment.operation != "recv" and len(self._came[name]) == num_needed:
            begins = max(*self._came[name], self._last[group])
            self._over[name] = self._last[group] = begins + self._seconds_of(moment)
