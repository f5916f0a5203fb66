"""One step of all ranks, replayed from their simulations: who waits for whom, and for how long.

In: a `Work`, a machine's primitives, and weights of features. Out: the seconds of the first rank's
step by feature, along the path that decides when it ends. Ranks compute, begin collectives and
messages, and wait for them, in the order in which their simulations did. A collective begins when
its last rank has come; those of a group run one after another. What runs while a rank computes
costs it the time of its copies and sums, the feature `interference`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from runners.forecast.costs import Part, Primitives, Rates, communicating
from runners.forecast.work import RankWork, Work
from runners.simulate.step_log import Moment

COMPUTING = (
    "forward",
    "backward",
    "optimizer",
    "other",
    "dtensor",
    "fsdp",
    "stage",
    "step",
    "product",
    "pass",
    "touch",
    "smooth",
    "attention",
    "update",
)
COMMUNICATING = ("collective", "queued", "message", "hidden", "interference", "link")
FEATURES = (*COMPUTING, *COMMUNICATING, "set")
FIXED = ("link", "set")  # what was set, or follows from a set speed, has no weight
NUM_STEPS = 3  # the last counts: by then ranks are as far apart as they stay
FRAME_BYTES, FRAME_PAYLOAD_BYTES = 1514, 1448
# A rank that shares its core works so long before another gets its turn. In a step that is shorter
# and meets no other rank, most often nothing interrupts it.
TURN_SECONDS = 0.003
UNKNOWN_COLLECTIVES = "how fast ranks communicate could not be measured here"
UNKNOWN_PRODUCTS = "no primitive knows how long products of 16-bit values take"

Seconds = dict[str, float]  # by feature
Weights = Mapping[str, float]


class Clock:
    """A point of time, as the sum of what led to it.

    Attributes:
        at: seconds, with weights.
        parts: unweighted seconds by feature.
    """

    __slots__ = ("at", "parts")

    def __init__(self, at: float = 0.0, parts: Seconds | None = None) -> None:
        self.at, self.parts = at, parts or {}

    def after(self, feature: str, seconds: float, weights: Weights) -> Clock:
        """So much later."""
        parts = dict(self.parts)
        parts[feature] = parts.get(feature, 0.0) + seconds
        return Clock(self.at + seconds * weights.get(feature, 1.0), parts)


def latest(clocks: Iterable[Clock]) -> Clock:
    """The last of some points of time."""
    return max(clocks, key=lambda one: one.at)


@dataclass
class _Meeting:
    """A collective or a message: who has come, and when it is over.

    Attributes:
        came: when each rank that takes part began it.
        is_hidden: whether ranks compute meanwhile.
    """

    moment: Moment
    came: dict[int, Clock] = field(default_factory=dict)
    is_hidden: bool = False
    over: Clock | None = None


@dataclass(frozen=True)
class Setting:
    """What a replay takes place in.

    Attributes:
        primitives: of the machine.
        num_places: ranks that can compute at once.
        bits_per_second: of each rank's link; None: they are on one machine.
    """

    primitives: Primitives
    num_places: int
    bits_per_second: int | None = None


class UnknownSpeedError(Exception):
    """No primitive knows how long something takes here; the message says what."""


class Replay:
    """Replays the steps of one run.

    Args:
        work: of the run.
        setting: of the machine.
        weights: of features; one without counts as it was measured.
        busy: ranks that compute at once.
    """

    def __init__(self, work: Work, setting: Setting, weights: Weights, busy: int) -> None:
        self._work, self._setting, self._weights = work, setting, weights
        self._rates = Rates(setting.primitives, busy, setting.num_places)
        self._num_in_a_message = max(2, busy)
        self._meetings: dict[tuple[object, ...], _Meeting] = {}
        self._last: dict[tuple[int, ...], Clock] = {}  # when a group's last collective was over
        self._known: dict[int, dict[str, Part]] = {}  # of a stretch of computing
        self.spreads: dict[
            str, tuple[float, float]
        ] = {}  # feature: seconds, and times their spread
        self.computing_seconds = 0.0  # of all ranks and steps

    def step(self) -> Clock | None:
        """The last step of the first rank; None where ranks wait for each other for ever."""
        ranks = [_Rank(index, one, self) for index, one in enumerate(self._work.ranks)]
        while any(not one.is_done for one in ranks):
            if not sum(one.advance() for one in ranks):
                return None
        end, start = ranks[0].ends[-1], ranks[0].ends[-2]
        names = {*end.parts, *start.parts}
        parts = {name: end.parts.get(name, 0.0) - start.parts.get(name, 0.0) for name in names}
        return Clock(end.at - start.at, parts)

    def after(self, clock: Clock, feature: str, part: Part) -> Clock:
        """So much later, with what is known of how sure that is."""
        seconds, weighed = self.spreads.get(feature, (0.0, 0.0))
        self.spreads[feature] = (
            seconds + part.seconds,
            weighed + part.seconds * part.spread,
        )
        return clock.after(feature, part.seconds, self._weights)

    def compute(self, clock: Clock, moment: Moment) -> Clock:
        """A stretch of computing later.

        Raises:
            UnknownSpeedError: no primitive knows an operation.
        """
        start = clock.at
        if any(cost[0] == "narrow" for cost in moment.costs):
            raise UnknownSpeedError(UNKNOWN_PRODUCTS)
        if id(moment) not in self._known:
            self._known[id(moment)] = self._rates.computing(moment.costs)
        for feature, part in self._known[id(moment)].items():
            clock = self.after(clock, feature, part)
        self.computing_seconds += clock.at - start
        return clock

    def between_steps(self, clock: Clock, rank: RankWork) -> Clock:
        """What a step costs beside what its operations cost."""
        start = clock.at
        if any(cost[0] == "start.backward" for one in rank.moments for cost in one.costs):
            clock = self.after(clock, "step", self._rates.step())
        if rank.touched_bytes:
            clock = self.after(clock, "touch", self._rates.touching(rank.touched_bytes))
        self.computing_seconds += clock.at - start
        return clock

    def meet(self, key: tuple[object, ...], moment: Moment) -> _Meeting:
        """The meeting of that name."""
        return self._meetings.setdefault(key, _Meeting(moment))

    def over(self, meeting: _Meeting) -> Clock | None:
        """When a meeting is over; None while somebody is missing."""
        if meeting.over is None and len(meeting.came) == self._num_needed(meeting.moment):
            begins = latest(meeting.came.values())
            group = tuple(meeting.moment.ranks)
            is_message = meeting.moment.operation in ("send", "recv")
            if not is_message and group in self._last:
                begins = latest([begins, self._last[group]])
            feature = "hidden" if meeting.is_hidden else self._kind(meeting.moment)
            meeting.over = self._passed(begins, meeting, "message" if is_message else feature)
            if not is_message:
                self._last[group] = meeting.over
        return meeting.over

    def _kind(self, moment: Moment) -> str:
        """Ranks that share cores also wait for each other's turns."""
        has_turns = len(moment.ranks) > self._setting.num_places
        return "queued" if has_turns else "collective"

    def _num_needed(self, moment: Moment) -> int:
        if self._work.are_alike or (moment.peer is None and moment.operation in ("send", "recv")):
            return 1
        return 2 if moment.operation in ("send", "recv") else len(moment.ranks)

    def _passed(self, begins: Clock, meeting: _Meeting, feature: str) -> Clock:
        part, wire = self.transfer(meeting.moment), self._wire_seconds(meeting.moment)
        if wire > part.seconds * self._weights.get(feature, 1.0):
            return self.after(begins, "link", Part(wire))
        return self.after(begins, feature, part)

    def transfer(self, moment: Moment) -> Part:
        """What one call takes.

        Raises:
            UnknownSpeedError: that was not measured here.
        """
        is_message = moment.operation in ("send", "recv")
        num_ranks = self._num_in_a_message if is_message else len(moment.ranks)
        part = communicating(moment.operation, moment.bytes, num_ranks, self._setting.primitives)
        if part is None:
            raise UnknownSpeedError(UNKNOWN_COLLECTIVES)
        return part

    def interfere(self, clock: Clock, moment: Moment) -> Clock:
        """What a rank's own part in a collective costs it that runs while it computes."""
        if self._setting.bits_per_second is not None:
            return clock
        return self.after(clock, "interference", self.transfer(moment))

    def _wire_seconds(self, moment: Moment) -> float:
        """Of what a rank sends over a link of a set speed, as rings do, in full frames."""
        bits = self._setting.bits_per_second
        n = len(moment.ranks)
        if bits is None or n < 2:
            return 0.0
        share = {"all_reduce": 2 * (n - 1) / n, "all_gather": (n - 1) / n}
        share["reduce_scatter"] = share["all_reduce"]  # gloo makes an all-reduce of it
        sent = moment.bytes * share.get(moment.operation, 1.0)
        return 8 * sent * (FRAME_BYTES / FRAME_PAYLOAD_BYTES) / bits


class _Rank:
    """One rank on its way through its steps."""

    def __init__(self, index: int, work: RankWork, replay: Replay) -> None:
        self._index, self._work, self._replay = index, work, replay
        self._place = self._step = 0
        self._counts: dict[tuple[object, ...], int] = {}
        self._begun: dict[int, tuple[Moment, _Meeting]] = {}
        self._clock = Clock()
        self.ends: list[Clock] = []

    @property
    def is_done(self) -> bool:
        """Whether it has taken all steps."""
        return self._step == NUM_STEPS

    def advance(self) -> int:
        """Go on as far as it can; how many moments that is."""
        num_passed = 0
        while not self.is_done and self._passes():
            num_passed += 1
        return num_passed

    def _passes(self) -> bool:
        """One moment; False where it has to wait for others."""
        moments = self._work.moments
        if self._place == len(moments):
            self._clock = self._replay.between_steps(self._clock, self._work)
            self.ends.append(self._clock)
            self._step, self._place = self._step + 1, 0
            self._begun.clear()
            return True
        moment = moments[self._place]
        if moment.kind == "compute":
            self._clock = self._replay.compute(self._clock, moment)
        elif moment.kind == "sleep":
            self._clock = self._replay.after(self._clock, "set", Part(moment.seconds))
        elif moment.kind == "begin":
            self._begin(moment, is_hidden=not self._waits_at_once(moment))
        elif not self._waited(moment):
            return False
        self._place += 1
        return True

    def _waits_at_once(self, moment: Moment) -> bool:
        following = self._work.moments[self._place + 1 : self._place + 2]
        return bool(following) and following[0].kind == "wait" and following[0].call == moment.call

    def _begin(self, moment: Moment, *, is_hidden: bool) -> None:
        name = self._name(moment)
        number = self._counts.get(name, 0)
        self._counts[name] = number + 1
        meeting = self._replay.meet((*name, number), moment)
        is_message = moment.operation in ("send", "recv")
        meeting.is_hidden |= is_hidden and not is_message
        meeting.came[self._index if not is_message else moment.operation == "send"] = self._clock
        self._begun[moment.call] = moment, meeting
        if is_hidden and not is_message:
            self._clock = self._replay.interfere(self._clock, moment)

    def _name(self, moment: Moment) -> tuple[object, ...]:
        """What all ranks of a meeting call it."""
        if moment.operation == "send":
            return ("message", self._index, moment.peer)
        if moment.operation == "recv":
            return ("message", moment.peer, self._index)
        return ("collective", *moment.ranks)

    def _waited(self, moment: Moment) -> bool:
        begun, meeting = self._begun.get(moment.call, (None, None))
        if begun is None or meeting is None or begun.operation == "send":
            return True  # what was sent lies in a buffer of the kernel
        over = self._replay.over(meeting)
        if over is None:
            return False
        self._clock = latest([self._clock, over])
        return True


def seconds_of(work: Work, setting: Setting, weights: Weights) -> tuple[Clock, float] | None:
    """A step of the first rank, and the spread of the primitives that it rests on.

    None where ranks wait for each other for ever, or nothing takes time.

    Raises:
        UnknownSpeedError: how fast ranks communicate was not measured here.
    """
    if not work.ranks:
        return None
    num_ranks, places = work.num_ranks, setting.num_places
    if _passes_messages(work):  # stages take turns: as many compute as have something to do
        alone = Replay(work, setting, weights, 1)
        step = alone.step()
        if step is None or step.at <= 0:
            return None
        busy = round(alone.computing_seconds / NUM_STEPS / step.at)
        num_ranks = max(1, min(num_ranks, busy))
    elif num_ranks > places and not _communicates(work):
        alone = Replay(work, setting, weights, places)
        step = alone.step()
        if step is not None and 0 < step.at < TURN_SECONDS:
            return step, _spread(step, alone, weights)
    replay = Replay(work, setting, weights, num_ranks)
    step = replay.step()
    if step is None or step.at <= 0:
        return None
    return step, _spread(step, replay, weights)


def _communicates(work: Work) -> bool:
    return any(moment.kind == "begin" for moment in work.ranks[0].moments)


def _passes_messages(work: Work) -> bool:
    moments = (moment for rank in work.ranks for moment in rank.moments)
    return any(moment.operation in ("send", "recv") for moment in moments)


def _spread(step: Clock, replay: Replay, weights: Weights) -> float:
    """Of a step, relative: errors of primitives are independent."""
    squares = 0.0
    for feature, (seconds, weighed) in replay.spreads.items():
        if seconds:
            own = step.parts.get(feature, 0.0) * weights.get(feature, 1.0)
            squares += (own / step.at * weighed / seconds) ** 2
    return float(squares**0.5)
