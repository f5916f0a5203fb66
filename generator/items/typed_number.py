"""A number that a reader types: the unit it is asked in, and how near it has to be.

In: the value asked for. Out: the unit's label as pages print it, how many base units one of it is,
and how far off an answer may be, in base units. What the page will print is right.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from generator.content.claim import Tolerance
from generator.evidence.units import AS_RULED, NBSP, PLAIN, SIZES, printed
from generator.evidence.value import Value, numeric

_PRINTED = re.compile(r"−?([\d,]+(?:\.\d+)?)(.*)", re.DOTALL)  # digits, then the unit


class Reach(NamedTuple):
    """What a typed answer is compared with.

    Attributes:
        number: in base units; None for words and shapes.
        within: how far off an answer may be, in base units.
        words: a shape or a word to type as it is; None for a number.
    """

    number: float | None
    within: float = 0.0
    words: str | None = None


class Unit(NamedTuple):
    """What a number is asked in: a label such as `MiB`, and its size in base units."""

    label: str
    scale: float


def unit_of(value: Value) -> Unit:
    """The unit that a value prints in: one of bytes, or else a power of ten of its base unit."""
    if isinstance(value.number, str):
        return Unit("", 1)
    mantissa, label = _parts(value)
    ratio = abs(value.number) / mantissa if mantissa else 1
    size = dict(SIZES).get(label.removesuffix("/s"))
    return Unit(label, size or 10.0 ** round(math.log10(ratio)))


def in_unit(value: Value, unit: Unit) -> str:
    """A value as a reader would type it: in the unit asked for, without zeros that say nothing."""
    number = printed(numeric(value) / unit.scale, PLAIN, AS_RULED)
    short = number.rstrip("0").rstrip(".") if "." in number else number
    return f"{short}{'' if unit.label in ('', '%') else NBSP}{unit.label}"


def reach(value: Value, tolerance: Tolerance | None) -> Reach:
    """How an answer is compared with a value."""
    if isinstance(value.number, str):
        return Reach(None, words=value.number)
    rounded = abs(abs(value.number) - _parts(value)[0] * unit_of(value).scale)
    return Reach(value.number, max(slack(tolerance, value), rounded))


def slack(tolerance: Tolerance | None, around: Value) -> float:
    """How far from a value an answer may lie and still be that value."""
    if tolerance is None or isinstance(around.number, str):
        return 0.0
    return tolerance.slack(around.number)


def _parts(value: Value) -> tuple[float, str]:
    """What a value prints: a number, and its unit."""
    found = _PRINTED.fullmatch(str(value))
    assert found, value
    return float(found[1].replace(",", "")), found[2].replace(NBSP, " ").strip()
