"""Scales and axes: a value → its place in pixels, round numbers for its ticks, a legend.

A scale is plain arithmetic, so that tests work out each place again from the axis alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from proofbook.generator.kinds.figures.drawing import LINE, Drawing, text_width

TICK, GAP = 4, 8  # pixels: the length of a tick; between words that are apart
BELOW = 44  # what an axis below a plot needs: ticks, labels, title
SAMPLE = 40  # of a legend's line


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic map from values to pixels."""

    low: float
    high: float
    start: float
    end: float
    is_logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """A value's place in pixels, `start` for `low` and `end` for `high`; not clamped."""
        if self.is_logarithmic:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def between(self, low: float, high: float) -> Scale:
        """The part of the scale between two values."""
        return replace(self, low=low, high=high, start=self(low), end=self(high))

    def ticks(self, num: int) -> list[float]:
        """About `num` round values of the scale."""
        slack = (self.high - self.low) * 1e-9
        ticks = round_values(self.low, self.high, num)
        return [tick for tick in ticks if self.low - slack <= tick <= self.high + slack]


def round_values(low: float, high: float, num: int, *, is_logarithmic: bool = False) -> list[float]:
    """Round ticks that enclose `low` and `high`: about `num`, or powers of ten (1, 2, 5 if few)."""
    if is_logarithmic:
        exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        has_few = sum(low <= 10.0**e <= high for e in exponents) <= 3
        values = [f * 10.0**e for e in exponents for f in ((1, 2, 5) if has_few else (1,))]
        first = max(value for value in values if value <= low)
        return [v for v in values if first <= v <= min(w for w in values if w >= high)]
    rough = (high - low) / num
    power = 10.0 ** math.floor(math.log10(rough))
    # The step of 1, 2, 5, 10 times a power of ten that is nearest by ratio.
    step = power * next((s for s in (1, 2, 5) if rough / power < s * math.sqrt(2)), 10)
    ends = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(n * step, 12) for n in range(ends[0], ends[1] + 1)]


def plain(value: float, digits: int = 6) -> str:
    """A number as text, at most `digits` significant, with commas, without trailing zeros."""
    if not value:
        return "0"
    decimals = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    text = f"{round(value, digits - 1 - math.floor(math.log10(abs(value)))):,.{decimals}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", "−")


def percent(value: float) -> str:
    """A share as a percentage."""
    return f"{plain(value * 100, 4)}%"


def x_axis(
    drawing: Drawing, scale: Scale, y: float, title: str,
    values: Sequence[float], says: Callable[[float], str] = plain,
) -> None:  # fmt: skip
    """Draw an axis at `y`: ticks, labels where they have room (last first), a title below."""
    drawing.line(scale.start, y, scale.end, y, "axis")
    free = drawing.width
    for value in sorted(values, reverse=True):
        x, half = scale(value), text_width(says(value)) / 2
        drawing.line(x, y, x, y + TICK, "axis")
        middle = max(min(x, drawing.width - half), half)
        if middle + half <= free:
            drawing.word(middle, y + TICK + 11, says(value), "soft", "middle")
            free = middle - half - GAP
    drawing.word(scale.end, y + TICK + 30, title, "soft", "end")


def grid_lines(
    drawing: Drawing, scale: Scale, left: float, right: float,
    values: Sequence[float], says: Callable[[float], str] = plain,
) -> None:  # fmt: skip
    """Draw a grid line across the plot for each value, labelled at the left."""
    for value in values:
        y = scale(value)
        drawing.line(left, y, right, y, "grid")
        drawing.word(left - GAP, y, says(value), "soft", "end")


def label_room(values: Sequence[float], says: Callable[[float], str] = plain) -> float:
    """Width of the labels of an upright axis, with a gap, in pixels."""
    return max(map(text_width, map(says, values)), default=0) + GAP


class AxisMark(NamedTuple):
    """A value at its place on an axis, and its words; of a line that readers move, none."""

    value: float
    words: str = ""


@dataclass(frozen=True)
class LegendEntry:
    """An entry of a legend: a name, and a sample of the line, the point or the box of that name."""

    name: str
    line: str = ""  # the look of a line
    mark: tuple[str, str] | None = None  # look and shape of a point
    box: str = ""  # the look of a box
    letter: tuple[str, str] = ("", "")  # on the box, and its look


def legend(drawing: Drawing, keys: Sequence[LegendEntry], y: float = 10) -> float:
    """Draw a legend, wrapped to the drawing's width; return the y of its lower end in pixels."""
    x = 0.0
    for key in keys:
        width = SAMPLE + GAP + text_width(key.name)
        if x and x + width > drawing.width:
            x, y = 0.0, y + LINE
        if key.box:
            drawing.box(x, y - 8, SAMPLE, 16, key.box)
            drawing.word(x + SAMPLE / 2, y, *key.letter, "middle")
        if key.line:
            drawing.line(x, y, x + SAMPLE, y, key.line)
        if key.mark:
            drawing.point(x + SAMPLE / 2, y, *key.mark)
        drawing.word(x + SAMPLE + GAP, y, key.name)
        x += width + 2 * GAP
    return y + LINE / 2
