"""From a run's work and a machine's primitives: bytes and seconds, with intervals. Pure; no torch.

In: the `Work` that an experiment's `forecast` gives for a plan, and `primitives`, what
`primitives.py` measured, by name. Out: a `RunForecast`. A step is the sum of what its busiest
 rank does one after another: starting operations, matrix products, passing over memory, the
update, and what of its communication no computation hides. Between two measured sizes the rate is
interpolated on logarithms; beyond the last it stays.

Intervals should hold nine of ten outcomes. Their width is the spread of the primitives that weigh
most, and beside it what the model itself is wrong by, since it adds its parts up as if they never
disturbed one another: `Constants`, which `fit.py` fits on measured runs. `BY_HAND` holds those that
were set without such a fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from runners.forecast.primitive_sizes import (
    BUSY,
    COLLECTIVES,
    COMMUNICATED_BYTES,
    ELEMENTWISE_BYTES,
    MATRICES,
    OPTIMIZED_PARAMETERS,
    SMOOTH_VALUES,
)
from runners.plans.work import Communication, Work
from runners.traces.fit import Constants
from runners.traces.measured import SampledSeconds
from runners.traces.prediction import Interval, RunForecast

# Where no fit is known. They were set after a look at runs of the reference machine; which runs is
# not recorded, so that they should not be scored on that machine.
BY_HAND = Constants(computing_error=0.15, communication_error=0.3, peak_error=0.005)
# What is set to last so long lasts longer by the time that waking up takes.
SET_SHARE = 0.03
NINE_OF_TEN = 1.645  # standard deviations to either side
QUARTILES_PER_DEVIATION = 1.349
LEAST_BYTES = 65_536  # small tensors that no closed form counts
FLOPS_OF_A_LAYER = 6  # for each row and weight: three products, two operations each
PRODUCTS_OF_A_LAYER = 3
OPERATIONS_PER_PRODUCT = 6
# A rank that shares its core works so long before another gets its turn. In a step that is shorter
# and meets no other rank, most often nothing interrupts it.
TURN_SECONDS = 0.003

Primitives = Mapping[str, SampledSeconds | float]


@dataclass(frozen=True)
class _Part:
    """One addend of a step: seconds, and the relative spread they were measured with."""

    seconds: float
    spread: float = 0.0
    communicates: bool = False


@dataclass(frozen=True)
class Step:
    """A step as predicted, before the constants say how wide its interval is.

    Attributes:
        once_seconds: what passes one after another, without what is set.
        num_sequential: how many times that passes.
        set_seconds: what is set rather than measured.
        communication_share: of the work, what waits for communication, 0 to 1.
        spread: of the primitives, as one standard deviation of the logarithm.
    """

    once_seconds: float
    num_sequential: float
    set_seconds: float
    communication_share: float
    spread: float

    @property
    def expected(self) -> float:
        """Seconds of the whole step."""
        return self.once_seconds * self.num_sequential + self.set_seconds

    def interval(self, constants: Constants) -> Interval:
        """The interval that holds nine of ten outcomes, where the constants are right."""
        step = self.once_seconds * self.num_sequential
        factor = math.exp(NINE_OF_TEN * self._deviation(constants))
        return Interval(
            expected=_rounded(self.expected),
            low=_rounded(step / factor + self.set_seconds),
            high=_rounded(step * factor + (1 + SET_SHARE) * self.set_seconds),
        )

    def _deviation(self, constants: Constants) -> float:
        """Errors of primitives are independent; the model's error is shared by runs of a kind."""
        share = self.communication_share
        return math.hypot(
            constants.computing_error * (1 - share),
            constants.communication_error * share,
            self.spread,
        )


def forecast_run(
    work: Work | None, primitives: Primitives, num_places: int, constants: Constants = BY_HAND
) -> RunForecast:
    """What a run will need.

    Args:
        work: of one step; None where the experiment predicts nothing.
        primitives: of this machine.
        num_places: ranks that can compute at once, each on a core or an accelerator of its own.
        constants: what the model is wrong by.
    """
    if work is None:
        return RunForecast(
            peak_bytes=None,
            step_seconds=None,
            reason="no closed form says what its steps need, or it has none",
        )
    peak = None if work.peak_bytes is None else peak_interval(work.peak_bytes, constants)
    if _lacks_ranks(work, primitives):
        reason = "how fast ranks communicate could not be measured here"
        return RunForecast(peak_bytes=peak, step_seconds=None, reason=reason)
    step = step_of(work, primitives, num_places)
    return RunForecast(peak_bytes=peak, step_seconds=step.interval(constants) if step else None)


def step_of(work: Work, primitives: Primitives, num_places: int) -> Step | None:
    """The step of some work; None where nothing of it takes time, or it cannot be known here."""
    if _lacks_ranks(work, primitives):
        return None
    parts = _parts(work, primitives, num_places)
    once = sum(part.seconds for part in parts)
    if once <= 0:
        return None
    return Step(
        once_seconds=once,
        num_sequential=work.num_sequential,
        set_seconds=work.extra_seconds,
        communication_share=sum(p.seconds for p in parts if p.communicates) / once,
        spread=math.hypot(*(part.seconds * part.spread / once for part in parts)),
    )


def _lacks_ranks(work: Work, primitives: Primitives) -> bool:
    """Whether communication among so many ranks could not be measured here."""
    return any(
        one.num_ranks > 1 and not _known_ranks(one, primitives) for one in work.communication
    )


def peak_interval(num_bytes: int, constants: Constants) -> Interval:
    """The interval of a peak."""
    slack = NINE_OF_TEN * constants.peak_error * num_bytes + LEAST_BYTES
    low, high = max(0.0, num_bytes - slack), num_bytes + slack
    return Interval(expected=float(num_bytes), low=low, high=high)


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.4g}")


def _parts(work: Work, primitives: Primitives, num_places: int) -> list[_Part]:
    """The addends of one step, without what is set."""
    busy = work.num_busy_ranks
    if not work.communication and busy > num_places:
        alone = _addends(work, primitives, _Together(primitives, num_places, num_places))
        if sum(part.seconds for part in alone) < TURN_SECONDS:
            return alone
    return _addends(work, primitives, _Together(primitives, busy, num_places))


def _addends(work: Work, primitives: Primitives, together: _Together) -> list[_Part]:
    computes = work.num_operations > 0
    parts = [
        together.part("step_{}_seconds") if computes else _Part(0.0),
        _times(together.part("operation_{}_seconds"), work.num_operations),
        _products(work, together),
        _passes(work, together),
        _smoothed(work, together),
        _update(work, together),
        *(_communicate(one, primitives) for one in work.communication),
    ]
    return [part for part in parts if part.seconds > 0]


class _Together:
    """Primitives as they are when several ranks are busy, from those counts that were measured."""

    def __init__(self, primitives: Primitives, busy: int, num_places: int) -> None:
        self._primitives = primitives
        known = [n for n in BUSY if f"operation_{n}_seconds" in primitives]
        self._busy = max((n for n in known if n <= busy), default=known[0])
        # Who has no place of its own waits for its turn; beyond what was measured, as many wait.
        measured_turns = max(1.0, self._busy / num_places)
        self._turns = max(1.0, busy / num_places) / measured_turns
        self._turns *= self._crowding(busy, num_places)

    def _crowding(self, busy: int, num_places: int) -> float:
        """What taking turns costs beside the turns themselves, where that was measured."""
        crowded = self._primitives.get(f"crowded_{busy}_seconds")
        calm = self._primitives.get(f"crowded_{self._busy}_seconds")
        if crowded is None or calm is None or busy <= num_places:
            return 1.0
        turns = busy / max(self._busy, num_places)
        return max(1.0, _middle(crowded).seconds / (_middle(calm).seconds * turns))

    def part(self, name: str) -> _Part:
        """A primitive whose name holds the number of busy ranks where `{}` stands."""
        return _times(_middle(self._primitives[name.format(self._busy)]), self._turns)


def _middle(primitive: SampledSeconds | float) -> _Part:
    """Median and relative spread of a primitive."""
    if isinstance(primitive, float):
        return _Part(primitive)
    median = max(primitive.median_seconds, 1e-9)
    width = primitive.third_quartile_seconds - primitive.first_quartile_seconds
    return _Part(median, max(0.0, width) / median / QUARTILES_PER_DEVIATION)


def _times(part: _Part, factor: float) -> _Part:
    return _Part(part.seconds * factor, part.spread)


def _between(sizes: Sequence[float], wanted: float, seconds: Callable[[float], _Part]) -> _Part:
    """What something of a size takes, from sizes that were measured.

    Within them logarithms are interpolated; beyond the largest the rate stays, and below the
    smallest the time does.
    """
    if wanted <= sizes[0]:
        return seconds(sizes[0])
    if wanted >= sizes[-1]:
        return _times(seconds(sizes[-1]), wanted / sizes[-1])
    low, high = next((a, b) for a, b in pairwise(sizes) if a <= wanted <= b)
    near, far = seconds(low), seconds(high)
    share = math.log(wanted / low) / math.log(high / low)
    return _Part(
        math.exp((1 - share) * math.log(near.seconds) + share * math.log(far.seconds)),
        max(near.spread, far.spread),
    )


def _products(work: Work, together: _Together) -> _Part:
    """Matrix products, at the rate of a layer with as many rows and as wide as theirs."""
    if not work.flops:
        return _Part(0.0)
    count = work.num_products or max(1, work.num_operations // OPERATIONS_PER_PRODUCT)
    rows, size = _shape(work.flops / count, work.matrix_rows)
    layers = count / PRODUCTS_OF_A_LAYER
    start = PRODUCTS_OF_A_LAYER * together.part("operation_{}_seconds").seconds
    layer = _layer(rows, size, together)
    # Starting an operation is counted by itself; a layer that is all start leaves little.
    return _Part(layers * max(layer.seconds - start, 0.2 * layer.seconds), layer.spread)


def _shape(flops: float, rows: int) -> tuple[float, float]:
    """Rows and width of the square layer whose products take that many operations each."""
    if not rows:
        side = (flops / 2) ** (1 / 3)
        return side, side
    return float(rows), math.sqrt(flops / 2 / rows)


def _layer(rows: float, size: float, together: _Together) -> _Part:
    """A layer's three products, between the measured ones: first by width, then by rows."""
    all_rows = sorted({r for r, _ in MATRICES})

    def by_width(of_rows: float) -> _Part:
        widths = sorted(s for r, s in MATRICES if r == of_rows)

        def measured(width: float) -> _Part:
            return together.part(f"matrix_{int(of_rows)}x{int(width)}_{{}}_seconds")

        if size > widths[-1]:  # as many operations more at the rate of the widest
            return _times(measured(widths[-1]), (size / widths[-1]) ** 2)
        if size < widths[0]:
            return _times(measured(widths[0]), (size / widths[0]) ** 1.5)
        return _between(widths, size, measured)

    if rows < all_rows[0]:
        return by_width(all_rows[0])
    return _between(all_rows, rows, by_width)


def _passes(work: Work, together: _Together) -> _Part:
    """Passing over memory: as many bytes at once as an operation has on average."""
    if not work.moved_bytes:
        return _Part(0.0)
    # A ReLU over so many bytes reads them and writes as many.
    at_once = work.block_bytes or work.moved_bytes / max(1, work.num_operations)
    name = "elementwise_{}_{{}}_seconds"
    one = _between(ELEMENTWISE_BYTES, at_once, lambda b: together.part(name.format(int(b))))
    start = together.part(name.format(ELEMENTWISE_BYTES[0])).seconds
    number = work.moved_bytes / 2 / max(at_once, 1.0)
    return _Part(number * max(0.0, one.seconds - start), one.spread)


def _smoothed(work: Work, together: _Together) -> _Part:
    """Values through smooth functions; a GELU and its gradient were measured, which are two."""
    if not work.smooth_values:
        return _Part(0.0)
    return _times(together.part("smooth_{}_seconds"), work.smooth_values / 2 / SMOOTH_VALUES)


def _update(work: Work, together: _Together) -> _Part:
    if not work.optimizer_parameters:
        return _Part(0.0)
    name = f"{work.optimizer}_{{}}_{{{{}}}}_seconds"
    return _between(
        OPTIMIZED_PARAMETERS,
        work.optimizer_parameters,
        lambda n: together.part(name.format(int(n))),
    )


def _collective(sent: Communication) -> str:
    return sent.operation if sent.operation in COLLECTIVES else "all_reduce"


def _known_ranks(sent: Communication, primitives: Primitives) -> list[int]:
    """Numbers of ranks among which communication of its kind was measured."""
    name = f"{_collective(sent)}_{{}}_{COMMUNICATED_BYTES[0]}_seconds"
    return [n for n in BUSY if name.format(n) in primitives]


def _communicate(sent: Communication, primitives: Primitives) -> _Part:
    """Calls of one collective; what passes while the rank computes costs it no time."""
    name, known = _collective(sent), _known_ranks(sent, primitives)
    if sent.num_ranks < 2 or not sent.count:
        return _Part(0.0)
    each = sent.num_bytes / sent.count

    def among(num_ranks: float) -> _Part:
        return _between(
            COMMUNICATED_BYTES,
            each,
            lambda b: _middle(primitives[f"{name}_{int(num_ranks)}_{int(b)}_seconds"]),
        )

    one = _between(known, sent.num_ranks, among)
    calls = _times(one, sent.count * (1 - sent.hidden_share))
    return replace(calls, communicates=True)


def best(forecasts: Iterable[tuple[str, Interval | None]]) -> str | None:
    """The run that is expected to need least; None where one of them was not predicted."""
    known = [(name, interval) for name, interval in forecasts]
    if not known or any(interval is None for _, interval in known):
        return None
    return min(known, key=lambda pair: pair[1].expected if pair[1] else math.inf)[0]
