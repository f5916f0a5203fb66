"""Units: how they combine in arithmetic, and the one rule by which every page prints a number.

Bytes are printed in B, KiB, MiB, GiB; times in µs, ms, s, h, days; operations and all rates in
powers of a thousand; shares in %; large counts in words, and in powers of ten beyond these. Three
significant digits, four for a loss; digits before the point are never rounded away. What a reader
must not see torn apart is joined by a no-break space. Plain Python formatting of floats is
correctly rounded, so the text is the same on every platform.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from proofbook.runners.core.trace import fields

WORDS = "words cannot be multiplied or divided"
LEAST_ERROR = 1e-5  # of a formula: what is less is the rounding of small numbers
Style = Literal["plain", "count", "ordinal", "share", "ratio", "loss", "text"]
Way = Literal["percent", "times", "exact", "written", "error"]
_FREE = frozenset({"plain", "count", "ordinal", "ratio"})


class UnitError(ValueError):
    """Two units that do not go together."""


class Unit(NamedTuple):
    """Powers of base units; for a number without any, what kind of number it is."""

    num_bytes: int = 0
    num_seconds: int = 0
    num_flops: int = 0
    num_bits: int = 0
    style: Style = "plain"

    @property
    def is_number(self) -> bool:
        """Whether it has no base unit."""
        return not any(self[:-1]) and self.style != "text"

    def __str__(self) -> str:
        named = (name for name, unit in OF_FIELDS.items() if any(unit[:-1]) and unit == self)
        return next(named, "a unit that nobody reads" if any(self[:-1]) else self.style)


BYTES, SECONDS, FLOP = Unit(num_bytes=1), Unit(num_seconds=1), Unit(num_flops=1)
_ENDS = {BYTES: "_bytes", SECONDS: "_seconds", FLOP: "_flops"}  # of the names of settings
TEXT = Unit(style="text")
PLAIN, COUNT, ORDINAL = Unit(style="plain"), Unit(style="count"), Unit(style="ordinal")
SHARE, RATIO, LOSS = Unit(style="share"), Unit(style="ratio"), Unit(style="loss")

# Of what authors cite and calculate with.
BY_NAME: dict[str, Unit] = {
    "bytes": BYTES, "seconds": SECONDS, "FLOP": FLOP, "bytes/s": Unit(1, -1),
    "FLOP/s": Unit(0, -1, 1), "bits/byte": Unit(-1, num_bits=1),
    "count": COUNT, "share": SHARE, "ratio": RATIO, "plain": PLAIN,
}  # fmt: skip
OF_FIELDS = BY_NAME | {
    "bits/s": Unit(0, -1, num_bits=1), "seconds/byte": Unit(-1, 1), "FLOP/byte": Unit(-1, 0, 1),
    "per second": Unit(0, -1), "loss": LOSS, "position": ORDINAL, "rank": ORDINAL,
}  # fmt: skip
COUNTS: fields.Sizes = (("trillion", 1e12), ("billion", 1e9), ("million", 1e6), ("", 1))
_SHORT = {
    "FLOP": "FLOP", "bytes/s": "B/s", "bits/s": "bit/s", "FLOP/s": "FLOP/s", "FLOP/byte": "FLOP/B",
}  # fmt: skip
SCALES: dict[Unit, fields.Sizes] = {
    BYTES: fields.SIZES,
    SECONDS: fields.TIMES,
    Unit(-1, 1): (("s/B", 1),),
} | {
    OF_FIELDS[name]: tuple((prefix + short, size) for prefix, size in fields.THOUSANDS)
    for name, short in _SHORT.items()
}


def of_field(name: str, number: float | str) -> Unit:
    """Unit of a recorded field by its unit's name, else a count or a plain number."""
    if isinstance(number, str):
        return TEXT
    return OF_FIELDS.get(name) or (COUNT if isinstance(number, int) else PLAIN)


def of_axis(unit: Unit, largest: float, least: float = 1) -> tuple[str, float]:
    """Unit name and size for an axis, so that its largest value has at least `least` of it."""
    counts = (("%", 0.01),) if unit == SHARE else COUNTS
    sizes = SCALES.get(unit, counts)
    return next(((name, size) for name, size in sizes if largest >= least * size), sizes[-1])


def of_sum(left: Unit, right: Unit) -> Unit:
    """The unit of a sum or a difference; UnitError where the two cannot be added."""
    if left == right:
        return left
    styles = {left.style, right.style}
    if left.is_number and right.is_number:
        if styles <= _FREE:
            return COUNT if styles == {"count", "ordinal"} else PLAIN
        if styles == {"share", "ratio"}:
            return SHARE
    message = f"{left} and {right} cannot be added or compared"
    unit = right if left.is_number else left
    if unit in _ENDS and left.is_number != right.is_number:
        message += f"; a setting is in {unit} if its name ends in `{_ENDS[unit]}`"
    raise UnitError(message)


def of_product(left: Unit, right: Unit) -> Unit:
    """The unit of a product: powers add; of pure numbers a share, loss, count or plain number."""
    if not (powers := _powers(left, right, 1)).is_number:
        return powers
    for unit in (SHARE, LOSS):
        other = right if left == unit else left
        if unit in (left, right) and other in (unit, RATIO):
            return unit
    return COUNT if left.style == right.style == "count" else PLAIN


def of_quotient(left: Unit, right: Unit) -> Unit:
    """The unit of a quotient: powers subtract; pure numbers give a ratio, a share or a loss."""
    if not (powers := _powers(left, right, -1)).is_number:
        return powers
    if left.is_number and left.style in ("share", "loss") and right.style != left.style:
        return left
    return RATIO


def _powers(left: Unit, right: Unit, sign: int) -> Unit:
    """The powers of base units that a product has, or with -1 a quotient."""
    if "text" in (left.style, right.style):
        raise UnitError(WORDS)
    powers = [power + sign * other for power, other in zip(left[:-1], right[:-1], strict=True)]
    return Unit._make([*powers, "plain"])


@dataclass(frozen=True)
class Form:
    """How a filter asked for a number to be printed; None leaves it to the rule."""

    digits: int | None = None
    way: Way | None = None
    label: str = ""  # what a plain number counts or is in, `Mbit/s`; before an ordinal: `rank`


AS_RULED = Form()


def printed(number: float | str, unit: Unit, form: Form) -> str:
    """Text of a number in base units, with its unit, as every page prints it; text stays as it is.

    `form` is what a filter asked for. UnitError if nobody reads the unit.
    """
    if isinstance(number, str):
        return number
    if form.way == "error" and 0 < abs(number) < LEAST_ERROR:
        return f"<{fields.NBSP}{_unsigned(LEAST_ERROR, SHARE, Form(digits=1))}"
    sign = "−" if number < 0 else ""
    label = form.label and form.way != "exact" and fields.NBSP + form.label
    if label and unit.style == "ordinal" and form.label.isalpha():
        return f"{form.label}{fields.NBSP}{number}"
    return f"{sign}{_unsigned(abs(number), unit, form)}{label or ''}"


def _unsigned(number: float, unit: Unit, form: Form) -> str:
    digits = form.digits or (4 if unit.style == "loss" else 3)
    if form.way == "exact":
        return fields.exactly(number, str(unit))
    if unit == Unit(0, -1):
        return f"{_count(number, digits)}{fields.NBSP}per{fields.NBSP}second"
    if unit in SCALES:
        return fields.scaled(number, SCALES[unit], digits)
    if any(unit[:-1]):
        raise UnitError(f"this would print in {unit}")
    return _pure(number, unit, form, digits)


def _pure(number: float, unit: Unit, form: Form, digits: int) -> str:
    if form.way in ("percent", "error") or (unit.style == "share" and form.way is None):
        return f"{fields.significant(number * 100, digits)}%"
    if form.way == "times":
        return f"{_count(number, digits)}{fields.NBSP}times"
    if unit.style == "ordinal" and isinstance(number, int):
        return str(number)
    if form.way == "written" and form.digits is None and number < 1_000_000:
        return fields.as_written(number)
    return _count(number, digits)


def _count(number: float, digits: int) -> str:
    if isinstance(number, int) and number < 1_000_000:
        return f"{number:,}"
    if 1 <= number < 1000 * COUNTS[0][1]:
        return fields.scaled(number, COUNTS, digits)
    return fields.significant(float(number), digits)
