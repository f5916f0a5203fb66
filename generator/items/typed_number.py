"""A number that a reader types: the unit it is asked in, and how near it has to be.

In: the value asked for. Out: the unit's label as pages print it, how many base units one of it is,
and how far off an answer may be, in base units. What the page will print is right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from generator.content.claim import Tolerance
from generator.evidence.units import AS_RULED, COUNTS, NBSP, PLAIN, SIZES, TIMES, printed
from generator.evidence.value import Value, numeric

_PRINTED = re.compile(
    rf"−?([\d,]+(?:\.\d+)?)(?:{NBSP}×{NBSP}10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?{NBSP}?(.*)", re.DOTALL
)
_NORMAL = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_SCALES: dict[str, float] = {
    "%": 0.01, "times": 1, "per second": 1, "trillion": 1e12,
    "byte": 1, "bytes": 1, "second": 1, "seconds": 1, "bytes per second": 1,
    **dict(SIZES), **{f"{name}/s": size for name, size in SIZES}, **dict(TIMES), **dict(COUNTS),
}  # fmt: skip


@dataclass(frozen=True)
class Reach:
    """What a typed answer is compared with.

    Attributes:
        number: in base units; None for words and shapes.
        within: how far off an answer may be, in base units.
        words: a shape or a word to type as it is; None for a number.
    """

    number: float | None
    within: float = 0.0
    words: str | None = None


@dataclass(frozen=True)
class Unit:
    """What a number is asked in: a label such as `MiB`, and its size in base units."""

    label: str
    scale: float


def unit_of(value: Value) -> Unit:
    """The unit that a value prints in."""
    if isinstance(value.number, str):
        return Unit("", 1)
    _, power, label = _parts(value)
    scale = _SCALES.get(label) or _SCALES.get(label.partition(" ")[0], 1)  # `million FLOPs`
    if not power:
        return Unit(label, scale)
    label = f"× 10{power} {label}".strip()
    return Unit(label, scale * 10.0 ** int(power.translate(_NORMAL)))


def in_unit(value: Value, unit: Unit) -> str:
    """A value as a reader would type it: in the unit asked for, without zeros that say nothing."""
    number = printed(numeric(value) / unit.scale, PLAIN, AS_RULED)
    short = number.rstrip("0").rstrip(".") if "." in number else number
    return f"{short}{'' if unit.label in ('', '%') else NBSP}{unit.label}"


def reach(value: Value, tolerance: Tolerance | None) -> Reach:
    """How an answer is compared with a value."""
    if isinstance(value.number, str):
        return Reach(None, words=value.number)
    mantissa, _, _ = _parts(value)
    as_printed = float(mantissa.replace(",", "")) * unit_of(value).scale
    rounded = abs(abs(value.number) - as_printed)
    return Reach(value.number, max(slack(tolerance, value), rounded))


def slack(tolerance: Tolerance | None, around: Value) -> float:
    """How far from a value an answer may lie and still be that value."""
    if tolerance is None or isinstance(around.number, str):
        return 0.0
    return tolerance.slack(around.number)


def _parts(value: Value) -> tuple[str, str, str]:
    """What a value prints: digits, power of ten, unit."""
    found = _PRINTED.fullmatch(str(value))
    assert found, value
    return found[1], found[2] or "", found[3].replace(NBSP, " ")
