"""What a rank does one after another in the counted step, and how the ranks' steps fit together.

In: what the meter of a simulation sees, the waits for communication, and `time.sleep`. Out: a list
of `Moment`. `replay` then takes the moments of all ranks and how long each lasts, and gives when
each rank ends its step: ranks compute, begin collectives and messages, and wait for them in the
order in which their simulations did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
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


def replay(ranks: Sequence[Sequence[Moment]], seconds_of: SecondsOf) -> list[float] | None:
    """When each rank ends its step; None where ranks wait for each other for ever.

    A collective begins when its last rank has come, and those of a group run one after another. A
    message waits for its sender alone, and a sender for nobody.

    Args:
        ranks: the moments of each rank from 0 on; of ranks that are alike, the first alone will do.
        seconds_of: how long a stretch of computing, a collective or a message lasts.
    """
    meetings = _Meetings(seconds_of, len(ranks))
    steps = [_Step(rank, moments, meetings) for rank, moments in enumerate(ranks)]
    while not all(one.is_over for one in steps):
        if not sum(one.advances() for one in steps):
            return None
    return [one.now for one in steps]


@dataclass
class _Meeting:
    """A collective or a message: when each of its ranks came, and when it is over."""

    came: dict[int, float] = field(default_factory=dict)
    over: float | None = None


class _Meetings:
    """Every collective and message of a step, by what all its ranks call it."""

    def __init__(self, seconds_of: SecondsOf, num_ranks: int) -> None:
        self.seconds_of, self._num_ranks = seconds_of, num_ranks
        self._known: dict[tuple[object, ...], _Meeting] = {}
        self._last: dict[tuple[int, ...], float] = {}  # when a group's last collective was over

    def come(self, key: tuple[object, ...], rank: int, moment: Moment, now: float) -> _Meeting:
        """A rank begins its part."""
        meeting = self._known.setdefault(key, _Meeting())
        meeting.came[rank] = now
        if moment.operation == "send":
            meeting.over = now + self.seconds_of(moment)
        elif moment.operation != "recv" and len(meeting.came) == self._num_needed(moment):
            group = tuple(moment.ranks)
            begins = max(*meeting.came.values(), self._last.get(group, 0.0))
            meeting.over = self._last[group] = begins + self.seconds_of(moment)
        return meeting

    def _num_needed(self, moment: Moment) -> int:
        return sum(rank < self._num_ranks for rank in moment.ranks)


class _Step:
    """One rank on its way through its step."""

    def __init__(self, rank: int, moments: Sequence[Moment], meetings: _Meetings) -> None:
        self._rank, self._moments, self._meetings = rank, moments, meetings
        self._place = 0
        self._counts: Counter[tuple[object, ...]] = Counter()
        self._begun: dict[int, _Meeting] = {}
        self.now = 0.0

    @property
    def is_over(self) -> bool:
        return self._place == len(self._moments)

    def advances(self) -> int:
        """Go on as far as possible; how many moments that is."""
        before = self._place
        while not self.is_over and self._passes(self._moments[self._place]):
            self._place += 1
        return self._place - before

    def _passes(self, moment: Moment) -> bool:
        """One moment; False where it has to wait for other ranks."""
        if moment.kind == "sleep":
            self.now += moment.seconds
        elif moment.kind == "compute":
            self.now += self._meetings.seconds_of(moment)
        elif moment.kind == "begin":
            self._begin(moment)
        elif moment.call in self._begun:
            over = self._begun[moment.call].over
            if over is None:
                return False
            self.now = max(self.now, over)
        return True

    def _begin(self, moment: Moment) -> None:
        key = self._name(moment)
        self._counts[key] += 1
        meeting = self._meetings.come((*key, self._counts[key]), self._rank, moment, self.now)
        if moment.operation != "send":  # what is sent lies in a buffer, and nobody waits for it
            self._begun[moment.call] = meeting

    def _name(self, moment: Moment) -> tuple[object, ...]:
        """What all ranks that take part call it."""
        if moment.operation == "send":
            return ("message", self._rank, moment.peer)
        if moment.operation == "recv":
            return ("message", moment.peer, self._rank)
        return ("collective", *moment.ranks)
