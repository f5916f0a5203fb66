"""Items that draw their numbers: the key and the wrong answers, tried on each draw.

In: an item, and the evidence. Out: the draws as items of their own, and mistakes. On each draw one
answer is right, no two are as near each other as rounding brings them, and the law holds: what
`domain:` says is true, bytes and counts are whole, and none is negative. With the settings of the
law's run, the key is what the law predicts.
"""

import operator
import re
from collections.abc import Iterator, Mapping
from itertools import combinations

from generator.content.cases import of_expression
from generator.content.draws import Draws, short_names
from generator.content.quiz import Drawable, Item
from generator.items.kinds.kind import Found, is_alike
from generator.values import units
from generator.values.evaluation import Evidence
from generator.values.value import Value, numeric

_ROUNDED = 0.01  # as a share of the larger number: three digits are printed
_BLUR = 1e-12  # of numbers that were divided and multiplied
_CONDITION = re.compile(r"([^<>=]+)(<=|>=|<|>)([^<>=]+)")
_RELATIONS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}


def variants(item: Item) -> tuple[Item, ...]:
    """An item as each draw that is asked, the first being the item itself."""
    return (item, *item.others) if isinstance(item, Drawable) and item.draws else (item,)


def mistakes(item: Item, evidence: Evidence) -> Iterator[Found]:
    """What is wrong with the draws of an item, at each place once and with the draw."""
    if not isinstance(item, Drawable) or item.draws is None or evidence.reference:
        return
    found = dict(_of_law(item.as_written, item.draws, evidence))
    for draw in item.draws.tried(item.id):
        called = ", ".join(f"{name} = {value}" for name, value in draw.items())
        for path, said in _of_draw(item.as_written, item.draws, short_names(draw), evidence):
            found.setdefault(path, f"draw {called}: {said}")
    yield from found.items()


def _are_counts(*values: Value) -> bool:
    """Whether all are printed to their last digit, so that none is rounded."""
    return all(str(one).replace(",", "") == f"{numeric(one):.0f}" for one in values)


def _of_law(item: Drawable, draws: Draws, evidence: Evidence) -> Iterator[Found]:
    """Whether the key is the law: with the settings of its run, it is what the law predicts."""
    claim = evidence.book.claims.get(draws.law)
    if claim is None:
        return  # said where it is named
    judged, run = evidence.judged(draws.law), {"run": claim.run} if claim.run else {}
    if judged.verdict != "holds":
        yield ("draws", "law"), f"{draws.law!r} does not hold"
    path, key = next(item.formulas())
    measured = {name: f"({of_expression(one, run)})" for name, one in draws.measured_with.items()}
    found, predicted = evidence.evaluate(of_expression(key, measured)), judged.predicted
    if not isinstance(found.result, Value):
        yield ("draws", "measured_with"), f"of the key {key}: {found.error}"
    elif predicted is None or isinstance(predicted.number, str):
        yield ("draws", "law"), f"{draws.law!r} predicts no single number"
    elif abs(numeric(found.result) - predicted.number) > _BLUR * abs(predicted.number):
        both = f"it is {found.result}, and the law {draws.law!r} predicts {predicted}"
        yield path, f"with the settings of its run {both}"


def _of_draw(
    item: Drawable, draws: Draws, names: Mapping[str, str], evidence: Evidence
) -> Iterator[Found]:
    """What is wrong with one draw."""
    values = []
    for path, expression in item.formulas():
        found = evidence.evaluate(of_expression(expression, names))
        if not isinstance(found.result, Value):
            yield path, f"{expression}: {found.error}"
            return
        values.append((path, found.result))
    for place, condition in enumerate(draws.domain):
        if said := _broken(condition, names, evidence):
            yield ("draws", "domain", place), said
    path, key = values[0]
    if said := _outside(key):
        yield path, f"the answer is {key}, {said}, so the law does not apply"
    tolerance = getattr(item, "tolerance", None)  # of a number that is typed
    for (_, one), (path, other) in combinations(values, 2):
        largest = max(abs(numeric(one)), abs(numeric(other)))
        rounded = 0 if _are_counts(one, other) else _ROUNDED * largest
        within = max(rounded, tolerance.slack(largest) if tolerance else 0)
        is_near = is_alike(one, other) and abs(numeric(one) - numeric(other)) <= within
        if is_near or str(one) == str(other):
            said = "two right answers" if one is key else "two answers alike"
            yield path, f"{said}: {one} and {other}, apart by no more than rounding"


def _outside(key: Value) -> str | None:
    """Why a number is none that the law is about."""
    number = numeric(key)
    if number < 0:
        return "a negative number"
    if key.unit in (units.BYTES, units.COUNT) and abs(number - round(number)) > _BLUR * number:
        return "not a whole number"
    return "more than the whole" if key.form.way == "percent" and number > 1 else None


def _broken(condition: str, names: Mapping[str, str], evidence: Evidence) -> str | None:
    """Why a condition is not true of a draw."""
    parts = _CONDITION.fullmatch(condition)
    if parts is None:
        return f"{condition!r} is no condition; write `a <= b`, or with one of >=, <, >"
    found = evidence.evaluate(of_expression(f"{parts[1]} - ({parts[3]})", names))
    if not isinstance(found.result, Value):
        return f"{condition}: {found.error}"
    is_true = _RELATIONS[parts[2]](numeric(found.result), 0)
    said = f"outside the domain, {condition}; change the sets, all draws of which must be inside"
    return None if is_true else said
