"""The path of a field of a run, `ranks[0].memory.peak_bytes`, and how its value is printed.

In: a path or its steps. Out: the steps, the value at their end, and a number with its unit, with
all its digits or the significant ones. The pages and the commands print numbers by this module, so
that a reader finds the same digits in both. Pure; no torch.
"""

import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeGuard

from pydantic import BaseModel

from proofbook.runners.core.trace.schema import Quantity

Key = str | int
Steps = tuple[Key, ...]  # of a path, from a run to one of its fields
NONE: Mapping[str, Quantity] = MappingProxyType({})
NAMES = ("name", "operation", "rank")  # fields by whose value a list of records is indexed
DECLARED = frozenset({"expected_status", "expected_death"})  # fields that prove nothing of a run
NBSP = "\u00a0"
_STEP = re.compile(r"\.?(?:([A-Za-z]\w*)|\[(-?\d+)\]|\['([^']+)'\]|\[\"([^\"]+)\"\])")
Sizes = tuple[tuple[str, float], ...]  # from the largest: a name, and how much one of it is
SIZES: Sizes = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))
TIMES: Sizes = (("days", 86400), ("h", 3600), ("s", 1), ("ms", 1e-3), ("µs", 1e-6))
THOUSANDS: Sizes = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1))
MEASURED_IN = ("bytes", "seconds", "FLOP", "bytes/s", "bits/s", "FLOP/s", "per second")
STAGED = ("stages", "prediction")  # what a timing holds the times of, by name
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def steps_of(path: str) -> list[Key]:
    """The steps of a path: `a.b.epochs[-1]` gives ["a", "b", "epochs", -1]; else ValueError."""
    steps: list[Key] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            raise ValueError(f"{path!r} is not a plain path to one field of a trace")
        name, index, *quoted = match.groups()
        steps.append(int(index) if index else name or next(q for q in quoted if q))
        position = match.end()
    if len(steps) < 3:
        raise ValueError(f"{path!r} names no field of a run")
    return steps


def path_of(steps: Sequence[Key]) -> str:
    """The path of steps; the inverse of `steps_of`."""
    parts = (f".{key}" if str(key).isidentifier() else f"[{key!r}]" for key in steps)
    return "".join(parts).removeprefix(".")


def value_at(root: Any, steps: Sequence[Key]) -> Any:  # noqa: ANN401
    """The value at the end of steps; a name finds the element of a list that bears it.

    KeyError, IndexError, AttributeError or TypeError where the steps lead nowhere.
    """
    value = root
    for key in steps:
        if isinstance(value, BaseModel):
            value = getattr(value, str(key))
        elif isinstance(value, list) and isinstance(key, str):
            value = next((element for element in value if key in names_of(element)), None)
        else:
            value = value[key]
    return value


def has_value_at(root: object, steps: Sequence[Key]) -> bool:
    """Whether there is a value other than None at the end of steps."""
    try:
        return value_at(root, steps) is not None
    except (KeyError, IndexError, AttributeError, TypeError):
        return False


def names_of(element: object) -> list[str]:
    """The names by which an element of a list is indexed."""
    return [str(getattr(element, name)) for name in NAMES if hasattr(element, name)]


# What some fields of a record count, and which of them are positions, or ranks.
_UNITS = {
    "count": "calls", "num_parameters": "parameters", "num_samples": "samples",
    **dict.fromkeys(("rank", "epoch", "step", "seed"), "position"),
    **dict.fromkeys(("source", "destination"), "rank"),
}  # fmt: skip
_ENDINGS = {
    "bytes": "bytes", "_bits_per_second": "bits/s", "byte_seconds": "seconds/byte",
    "_seconds": "seconds", "flops": "FLOP", "_share": "share", "accuracy": "share",
}  # fmt: skip


def quantity(steps: Sequence[Key], measures: Mapping[str, Quantity] = NONE) -> Quantity:
    """A `Quantity`, unit and repeatability, of the value at steps: by `measures`, else by names.

    The steps start from a run or a machine, and `measures` are its recorded quantities. A trace may
    lack them for some measures.
    """
    names = [key for key in steps if isinstance(key, str)]
    last, above = names[-1], names[-2] if len(names) > 1 else ""
    if above == "measures" and last in measures:
        return measures[last]
    unit = _unit_of(last, above, is_time="timing" in names)
    if unit == "seconds" or "timing" in names:
        return Quantity(unit=unit, repeats="clock")
    if last.endswith(("kernel_peak_bytes", "held_bytes")):
        return Quantity(unit=unit, repeats="kernel")
    is_digest = "digest" in last and not last.startswith("num_")
    return Quantity(unit=unit, repeats="bits" if is_digest else "rounded")


def _unit_of(name: str, above: str, *, is_time: bool) -> str:
    """The unit of a field by its name, and by what holds it."""
    if "_bytes_per_" in name or above == "phases":
        return "bytes"
    if name == "samples" or (is_time and above in STAGED):
        return "seconds"
    by_ending = (unit for ending, unit in _ENDINGS.items() if name.endswith(ending))
    return next(by_ending, "") or ("loss" if "loss" in name else _UNITS.get(name, ""))


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def as_written(number: float) -> str:
    """A number as text with all its digits: `−1,234.5`, or `1.5 × 10⁻⁷` where Python has `e`."""
    if number < 0:
        return f"−{as_written(-number)}"
    if isinstance(number, int):
        return f"{number:,}"
    mantissa, _, exponent = f"{number:,}".partition("e")
    mantissa = mantissa.removesuffix(".0")
    return _times_power(mantissa, int(exponent)) if exponent else mantissa


def _times_power(mantissa: str, power: int) -> str:
    return f"{mantissa}{NBSP}×{NBSP}10{str(power).translate(_SUPERSCRIPTS)}"


def significant(number: float, digits: int) -> str:
    """A number as text with so many significant digits; an int with more keeps all its own."""
    if number == 0:
        return "0"
    if isinstance(number, int) and number >= 10 ** (digits - 1):
        return f"{number:,}"
    mantissa, exponent = f"{number:.{digits - 1}e}".split("e")
    power = int(exponent)
    if power < -4 or power > 14:
        return _times_power(mantissa, power)
    return f"{number:,.{max(digits - 1 - power, 0)}f}"


def scaled(number: float, sizes: Sizes, digits: int = 3) -> str:
    """A number as text, rounded, in the largest unit that gives at least 1; whole bytes exact."""
    if number == 0:
        return f"0{NBSP}{next(name for name, size in sizes if size == 1)}"
    fitting = (pair for pair in sizes if float(f"{number / pair[1]:.{digits - 1}e}") >= 1)
    name, size = next(fitting, sizes[-1])
    is_whole = name in ("B", "B/s") and number == int(number)
    text = f"{number:,.0f}" if is_whole else significant(number / size, digits)
    return f"{text}{NBSP}{name}" if name else text


def exactly(number: float, unit: str) -> str:
    """A number with all its digits, and bytes or seconds behind it: `1 byte`, `164,000 bytes`."""
    if unit not in MEASURED_IN:
        return as_written(number)
    name = unit if number != 1 else unit.removesuffix("s")
    return f"{as_written(number)}{NBSP}{name}"


def in_words(value: object, unit: str) -> str:
    """Any value of a run as text: a number exactly, a shape by its sizes, other lists by length."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return exactly(value, unit)
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(size, int) for size in value):
        return f"{NBSP}×{NBSP}".join(f"{size:,}" for size in value)
    if isinstance(value, list | dict):
        return f"{len(value):,} {'entry' if len(value) == 1 else 'entries'}"
    return json.dumps(value)
