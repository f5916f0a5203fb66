"""What computing and communicating cost on a machine, from its primitives. Pure; no torch.

In: costs of a simulation's timeline (`runners/simulate/timeline.py`), and primitives by name
(`primitives.py`). Out: seconds by feature. A feature is a kind of work that a primitive knows the
time of; how much longer than its primitive it takes in a program is its weight (`weights.py`).
Between two measured sizes seconds are interpolated on logarithms. Beyond the last the rate stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
from runners.simulate.step_log import Cost
from runners.traces.measured import SampledSeconds

QUARTILES_PER_DEVIATION = 1.349
ERROR_OF_A_MEDIAN = 1.253  # of a mean's, for a normal distribution
PRODUCTS_OF_A_LAYER = 3
FLOPS_OF_A_LAYER = 6  # for each row and weight: three products, two operations each
SGD_PASSES = 3  # it reads a parameter and its gradient, and writes the parameter
FLOAT_BYTES = 4
ATTENTION = (512, 64)  # rows and width of a product whose rate attention is compared with

Primitives = Mapping[str, SampledSeconds | float]


@dataclass(frozen=True)
class Part:
    """Seconds, and how sure they are: a standard error, relative."""

    seconds: float
    spread: float = 0.0

    def times(self, factor: float) -> Part:
        """As often."""
        return Part(self.seconds * factor, self.spread)


class Rates:
    """What things take while so many ranks compute at once.

    Args:
        primitives: of this machine.
        busy: ranks that compute at once.
        num_places: ranks that can, each on a core or an accelerator of its own.
    """

    def __init__(self, primitives: Primitives, busy: int, num_places: int) -> None:
        self._primitives = primitives
        known = [n for n in BUSY if f"operation_{n}_seconds" in primitives]
        self._busy = max((n for n in known if n <= busy), default=known[0])
        # Who has no place of its own waits for its turn; beyond what was measured, as many wait.
        measured_turns = max(1.0, self._busy / num_places)
        self._turns = max(1.0, busy / num_places) / measured_turns
        self._turns *= self._crowding(busy, num_places)
        self._operation = self.primitive("operation_{}_seconds")

    def _crowding(self, busy: int, num_places: int) -> float:
        """What taking turns costs beside the turns themselves, where that was measured."""
        crowded = self._primitives.get(f"crowded_{busy}_seconds")
        calm = self._primitives.get(f"crowded_{self._busy}_seconds")
        if crowded is None or calm is None or busy <= num_places:
            return 1.0
        turns = busy / max(self._busy, num_places)
        return max(1.0, _middle(crowded).seconds / (_middle(calm).seconds * turns))

    def primitive(self, name: str) -> Part:
        """A primitive whose name holds the number of busy ranks where `{}` stands."""
        return _middle(self._primitives[name.format(self._busy)]).times(self._turns)

    def computing(self, costs: Iterable[Cost]) -> dict[str, Part]:
        """What a stretch of computing takes, by feature."""
        seconds: dict[str, float] = {}
        squares: dict[str, float] = {}
        for kind, first, second, third, count in costs:
            feature, part = self._part(kind, (first, second, third))
            seconds[feature] = seconds.get(feature, 0.0) + count * part.seconds
            squares[feature] = squares.get(feature, 0.0) + count * part.seconds * part.spread
        return {
            feature: Part(total, squares[feature] / total if total else 0.0)
            for feature, total in seconds.items()
        }

    def _part(self, kind: str, sizes: tuple[int, int, int]) -> tuple[str, Part]:
        if kind.startswith("start."):
            return kind.removeprefix("start."), self._operation
        if kind == "product":
            return kind, self._product(*sizes)
        if kind == "pass":
            return kind, self.passing(sizes[0])
        if kind == "smooth":
            smooth = self.primitive("smooth_{}_seconds")
            return kind, smooth.times(sizes[0] / 2 / SMOOTH_VALUES)  # a function and its gradient
        if kind == "attention":
            rows, size = ATTENTION
            flops = FLOPS_OF_A_LAYER * rows * size**2
            return kind, self._layer(rows, size).times(sizes[0] / flops)
        if kind == "update":
            return kind, self._update(sizes[0])
        return kind, self._operation  # what Python does around operations

    def step(self) -> Part:
        """What a step costs beside its operations."""
        return self.primitive("step_{}_seconds")

    def touching(self, num_bytes: int) -> Part:
        """What the kernel takes to give and clear so many bytes of memory."""
        largest = ELEMENTWISE_BYTES[-1]
        whole = self.primitive(f"elementwise_{largest}_{{}}_seconds")
        rest = whole.seconds - self.passing(2 * largest).seconds
        return Part(max(0.0, rest) * num_bytes / largest, whole.spread)

    def passing(self, num_bytes: int) -> Part:
        """Going over bytes that are there; an update by SGD passes over large ones in place."""
        if not num_bytes:
            return Part(0.0)
        small = {2 * b: f"elementwise_{b}_{{}}_seconds" for b in ELEMENTWISE_BYTES[:3]}
        # Four parameters are updated by an operation each.
        large = {
            SGD_PASSES * FLOAT_BYTES * n // 4: f"sgd_{n}_{{}}_seconds"
            for n in OPTIMIZED_PARAMETERS[1:]
        }
        names = {**small, **large}

        def measured(size: float) -> Part:
            part = self.primitive(names[int(size)])
            return part.times(1 / 4) if int(size) in large else part

        one = between(sorted(names), num_bytes, measured)
        start = self.primitive(small[2 * ELEMENTWISE_BYTES[0]])
        return Part(max(0.0, one.seconds - start.seconds), one.spread)

    def _product(self, rows: int, first: int, second: int) -> Part:
        """A matrix product, at the rate of a layer with as many rows and as wide."""
        if not rows * first * second:
            return Part(0.0)
        layer = self._layer(float(rows), math.sqrt(first * second))
        start = PRODUCTS_OF_A_LAYER * self._operation.seconds
        # Starting an operation is counted by itself; a layer that is all start leaves little.
        seconds = max(layer.seconds - start, 0.2 * layer.seconds)
        return Part(seconds / PRODUCTS_OF_A_LAYER, layer.spread)

    def _layer(self, rows: float, size: float) -> Part:
        """A layer's three products, between the measured ones: first by width, then by rows."""
        all_rows = sorted({r for r, _ in MATRICES})

        def by_width(of_rows: float) -> Part:
            widths = sorted(s for r, s in MATRICES if r == of_rows)

            def measured(width: float) -> Part:
                return self.primitive(f"matrix_{int(of_rows)}x{int(width)}_{{}}_seconds")

            if size > widths[-1]:  # as many operations more at the rate of the widest
                return measured(widths[-1]).times((size / widths[-1]) ** 2)
            if size < widths[0]:
                return measured(widths[0]).times((size / widths[0]) ** 1.5)
            return between(widths, size, measured)

        if rows < all_rows[0]:
            return by_width(all_rows[0])
        return between(all_rows, rows, by_width)

    def _update(self, num_parameters: int) -> Part:
        name = "fused_adam_{}_{{}}_seconds"
        return between(
            OPTIMIZED_PARAMETERS, num_parameters, lambda n: self.primitive(name.format(int(n)))
        )


def between(sizes: Sequence[float], wanted: float, seconds: Callable[[float], Part]) -> Part:
    """What something of a size takes, from sizes that were measured.

    Within them logarithms are interpolated; beyond the largest the rate stays, and below the
    smallest the time does.
    """
    if wanted <= sizes[0]:
        return seconds(sizes[0])
    if wanted >= sizes[-1]:
        return seconds(sizes[-1]).times(wanted / sizes[-1])
    low, high = next((a, b) for a, b in pairwise(sizes) if a <= wanted <= b)
    near, far = seconds(low), seconds(high)
    share = math.log(wanted / low) / math.log(high / low)
    return Part(
        math.exp((1 - share) * math.log(near.seconds) + share * math.log(far.seconds)),
        max(near.spread, far.spread),
    )


def communicating(
    operation: str, num_bytes: int, num_ranks: int, primitives: Primitives
) -> Part | None:
    """What one call of a collective or one message takes; None where it is not known here."""
    if num_ranks < 2:
        return Part(0.0)
    name, known = _measured(operation), _known_ranks(operation, primitives)
    if not known:
        return None

    def among(ranks: float) -> Part:
        return between(
            COMMUNICATED_BYTES,
            num_bytes,
            lambda b: _middle(primitives[f"{name}_{int(ranks)}_{int(b)}_seconds"]),
        )

    return between(known, 2 if name == "send" else num_ranks, among)


def _measured(operation: str) -> str:
    operation = "send" if operation == "recv" else operation
    return operation if operation in COLLECTIVES else "all_reduce"


def _known_ranks(operation: str, primitives: Primitives) -> list[int]:
    """Numbers of ranks among which communication of its kind was measured."""
    name = f"{_measured(operation)}_{{}}_{COMMUNICATED_BYTES[0]}_seconds"
    return [n for n in BUSY if name.format(n) in primitives]


def _middle(primitive: SampledSeconds | float) -> Part:
    """Median of a primitive, and the relative standard error of that median."""
    if isinstance(primitive, float):
        return Part(primitive)
    median = max(primitive.median_seconds, 1e-9)
    width = primitive.third_quartile_seconds - primitive.first_quartile_seconds
    deviation = max(0.0, width) / median / QUARTILES_PER_DEVIATION
    return Part(median, ERROR_OF_A_MEDIAN * deviation / math.sqrt(primitive.num_samples))
