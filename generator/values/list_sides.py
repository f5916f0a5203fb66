"""A claim over a list: a rule that holds for each element, such as each rank or each step.

In: both sides of a claim. Out: the pairs of elements that its relation compares, one value for each
side that a page can print, and what an element is: a rank, an epoch, a step. A single value is
compared with each element of the other side's list.
"""

import re
from collections.abc import Sequence

from proofbook.generator.values import units
from proofbook.generator.values.filters import elements
from proofbook.generator.values.paths import Node
from proofbook.generator.values.value import AbsentError, ExpressionError, Value, computed, numeric
from proofbook.runners.core.trace.measured import SampledSeconds

MOST_WRITTEN_OUT = 4  # elements that a page lists one by one
NOUNS = {"ranks": "rank", "epochs": "epoch", "step_losses": "step", "stages": "stage"}
_LIST = re.compile(rf"\b({'|'.join(NOUNS)})\b(?!\[-?\d+\])")


def is_list(side: object) -> bool:
    """Whether a side has elements."""
    return isinstance(side.content if isinstance(side, Node) else side, list | dict | tuple)


def listed(side: object) -> tuple[Value, ...] | None:
    """A tuple of Values, of a side that is a list, or None; ExpressionError if it has groups."""
    if not is_list(side):
        return None
    members = elements(side)
    values = tuple(member for member in members if isinstance(member, Value))
    if len(values) != len(members):
        raise ExpressionError("a rule over a list compares values; go on to one field of each")
    return values


def paired(predicted: object, observed: object) -> list[tuple[Value, Value]]:
    """A list of pairs of Values of two sides, a single one repeated; or ExpressionError."""
    lists = [listed(predicted), listed(observed)]
    num = max(len(values) for values in lists if values)
    left, right = (lists[0] or [predicted] * num), (lists[1] or [observed] * num)
    values = [member for member in (*left, *right) if isinstance(member, Value)]
    if len(values) < 2 * num:
        raise ExpressionError("a list is compared with one value, or with a list as long")
    return list(zip(values[:num], values[num:], strict=True))


def collected(values: Sequence[Value]) -> Value:
    """A printable `Value` of a list: the common value, else a text of all, or of their range."""
    first = values[0]
    is_alike = len({(value.number, value.unit) for value in values}) == 1
    if is_alike and (
        all(value is first for value in values) or not any(value.leaves for value in values)
    ):
        return first
    more = ["…"] * (len(values) > MOST_WRITTEN_OUT)
    formulas = dict.fromkeys(value.formula for value in values[:MOST_WRITTEN_OUT])
    number, unit = (first.number, first.unit) if is_alike else (_written(values), units.TEXT)
    return computed(number, unit, ", ".join([*formulas, *more]), tuple(dict.fromkeys(values)))


def single_value(side: object) -> Value | None:
    """A printable `Value` of a side: a list is `collected`, of samples the median; else None."""
    if isinstance(side, Node) and isinstance(side.content, SampledSeconds):
        side = side.step("median_seconds")
    if isinstance(side, Value):
        return side
    try:
        values = listed(side)
    except (ExpressionError, AbsentError):
        return None
    return collected(values) if values else None


def _written(values: Sequence[Value]) -> str:
    if len(values) <= MOST_WRITTEN_OUT:
        return ", ".join(map(str, values))
    if any(isinstance(value.number, str) for value in values):
        return f"{values[0]}, …, {values[-1]}"
    return f"{min(values, key=numeric)} to {max(values, key=numeric)}"


def element_noun(observed: str) -> str:
    """Noun for an element of the observed list, such as `rank` or `epoch`."""
    named = _LIST.search(observed)
    return NOUNS[named[1]] if named else "value"
