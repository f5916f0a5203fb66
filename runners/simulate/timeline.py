"""What a rank does one after another in the counted step, and how the ranks' steps fit together.

In: what the meter of a simulation sees, the waits for communication, and `time.sleep`. Out: a list
of `Moment`. `replay` then takes the moments of all ranks and how long each lasts, and gives when
each rank ends its step: ranks compute, begin collectives and messages, and wait for them in the
order in which their simulations did.
"""

from __future__ import annotations

from collections import Counter, defaultdict
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
    step, places = _Step(len(ranks), seconds_of), [0] * len(ranks)
    while True:
        before = list(places)
        for rank, moments in enumerate(ranks):
            while places[rank] < len(moments) and step.passes(rank, moments[places[rank]]):
                places[rank] += 1
        if places == [len(moments) for moments in ranks]:
            return step.now
        if places == before:
            return None


class _Step:
    """How far each rank is in its step, and which collectives and messages are over."""

    def __init__(self, num_ranks: int, seconds_of: SecondsOf) -> None:
        self.now = [0.0] * num_ranks
        self._seconds_of = seconds_of
        self._came: defaultdict[Name, dict[int, float]] = defaultdict(dict)
        self._over: dict[Name, float] = {}
        self._last: defaultdict[Name, float] = defaultdict(float)  # of a group's collectives
        self._counts: Counter[tuple[int, Name]] = Counter()
        self._begun: dict[tuple[int, int], Name] = {}  # by rank and call

    def passes(self, rank: int, moment: Moment) -> bool:
        """Whether a rank gets past a moment; not where it has to wait for other ranks."""
        if moment.kind == "sleep":
            self.now[rank] += moment.seconds
        elif moment.kind == "compute":
            self.now[rank] += self._seconds_of(moment)
        elif moment.kind == "begin":
            self._begin(rank, moment)
        elif (rank, moment.call) in self._begun:
            name = self._begun[rank, moment.call]
            if name not in self._over:
                return False
            self.now[rank] = max(self.now[rank], self._over[name])
        return True

    def _begin(self, rank: int, moment: Moment) -> None:
        if moment.operation == "send":
            group: Name = ("message", rank, moment.peer)
        elif moment.operation == "recv":
            group = ("message", moment.peer, rank)
        else:
            group = ("collective", *moment.ranks)
        self._counts[rank, group] += 1
        name, now = (*group, self._counts[rank, group]), self.now[rank]
        if moment.operation == "send":  # what is sent lies in a buffer, and nobody waits for it
            self._over[name] = now + self._seconds_of(moment)
            return
        self._begun[rank, moment.call] = name
        self._came[name][rank] = now
        num_needed = sum(one < len(self.now) for one in moment.ranks)
        if moment.operation != "recv" and len(self._came[name]) == num_needed:
            begins = max(*self._came[name].values(), self._last[group])
            self._over[name] = self._last[group] = begins + self._seconds_of(moment)
