"""Items that draw their numbers: the key and the wrong answers, tried on each draw.

In: an item as written, and the evidence. Out: the draws as items of their own, for whoever needs
several; and mistakes. On each draw one answer is right, no two print as near each other as rounding
brings them, and the law holds: what it says of its domain is true, bytes and counts are whole, and
none is negative. With the settings of the law's run, the key is what the law predicts.
"""

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations

from generator.content.cases import of_expression
from generator.content.draws import Draws, in_words, short_names
from generator.content.quiz import Drawable, Item
from generator.items.kinds.kind import Found, is_alike
from generator.values import units
from generator.values.evaluation import Evidence
from generator.values.expression import compiled
from generator.values.value import Value, numeric

_ROUNDED = 0.01  # as a share of the larger number: three digits are printed
_BLUR = 1e-12  # of whole numbers that were divided and multiplied
_SAME = 1e-9  # of a key and its law, which may divide in another order
_RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_CONDITION = re.compile(r"([^<>=]+)(<=|>=|<|>)([^<>=]+)")
_WHOLE = (units.BYTES, units.COUNT)


def variants(item: Item) -> tuple[Item, ...]:
    """An item as each draw that is asked, the first being the item itself."""
    return (item, *item.others) if isinstance(item, Drawable) and item.draws else (item,)


def mistakes(item: Item, evidence: Evidence) -> Iterator[Found]:
    """What is wrong with the draws of an item; the first of each kind, with its draw."""
    if not isinstance(item, Drawable) or item.draws is None or evidence.reference:
        return
    written = item.as_written
    found = dict(_of_law(written, item.draws, evidence))
    for draw in item.draws.tried(item.id):
        for path, said in _of_draw(written, item.draws, short_names(draw), evidence):
            found.setdefault(path, f"{in_words(draw)}: {said}")
    yield from found.items()


def _of_law(item: Drawable, draws: Draws, evidence: Evidence) -> Iterator[Found]:
    """Whether the key is the law: with the settings of its run, it is what the law predicts."""
    claim = evidence.book.claims.get(draws.law)
    if claim is None:
        return  # said where it is named
    if evidence.judged(draws.law).verdict != "holds":
        yield ("draws", "law"), f"{draws.law!r} does not hold"
        return
    run = {"run": claim.run} if claim.run else {}
    path, key = next(item.formulas())
    unmeasured = compiled(key).names.keys() & draws.settings.keys() - draws.measured_with.keys()
    if unmeasured:
        said = f"the key reads {min(unmeasured)!r}; say what it is in the run of the law"
        yield ("draws", "measured_with"), said
        return
    measured = {name: f"({of_expression(one, run)})" for name, one in draws.measured_with.items()}
    for name, one in measured.items():
        if error := evidence.evaluate(one).error:
            yield ("draws", "measured_with", name), error
            return
    found = evidence.evaluate(of_expression(key, measured))
    predicted = evidence.judged(draws.law).predicted
    if found.error or not isinstance(found.result, Value) or predicted is None:
        yield path, found.error or f"the law {draws.law!r} predicts no single value"
    elif not _is_same(found.result, predicted, claim.tolerance.slack if claim.tolerance else None):
        yield (
            path,
            (
                f"with the settings of its run it is {found.result}, and the law {draws.law!r} "
                f"predicts {predicted}"
            ),
        )


def _is_same(one: Value, other: Value, slack: Callable[[float], float] | None) -> bool:
    if isinstance(one.number, str) or isinstance(other.number, str):
        return one.number == other.number
    within = max(_SAME * abs(other.number), slack(other.number) if slack else 0)
    return abs(one.number - other.number) <= within


def _of_draw(
    item: Drawable, draws: Draws, names: Mapping[str, str], evidence: Evidence
) -> Iterator[Found]:
    """What is wrong with one draw."""
    values: list[tuple[Found, Value]] = []
    for path, expression in item.formulas():
        found = evidence.evaluate(of_expression(expression, names))
        if found.error or not isinstance(found.result, Value):
            yield path, f"{expression}: {found.error or 'no single value'}"
            return
        values.append(((path, expression), found.result))
    for place, condition in enumerate(draws.domain):
        if said := _broken(condition, names, evidence):
            yield ("draws", "domain", place), said
    (key_path, _), key = values[0]
    if said := _outside(key):
        yield key_path, f"the answer is {key}, {said}, so the law does not apply"
    tolerance = getattr(item, "tolerance", None)  # of a number that is typed
    slack = tolerance.slack if tolerance else None
    for (_, one), ((path, _), other) in combinations(values, 2):
        if _is_near(one, other, slack):
            right = "two right answers" if one is key else "two answers alike"
            yield path, f"{right}: {one} and {other}, apart by no more than rounding"


def _is_near(one: Value, other: Value, slack: Callable[[float], float] | None) -> bool:
    """Whether two answers could be taken for each other once they are printed."""
    if str(one) == str(other):
        return True
    if not is_alike(one, other):
        return False
    first, second = numeric(one), numeric(other)
    within = max(_ROUNDED * max(abs(first), abs(second)), slack(first) if slack else 0)
    return abs(first - second) <= within


def _outside(key: Value) -> str | None:
    """Why a number is none that the law is about."""
    number = numeric(key)
    if number < 0:
        return "a negative number"
    if key.unit in _WHOLE and abs(number - round(number)) > _BLUR * number:
        return f"not a whole number of {key.unit}s".replace("ss", "s")
    return "more than the whole" if key.form.way == "percent" and number > 1 else None


def _broken(condition: str, names: Mapping[str, str], evidence: Evidence) -> str | None:
    """Why a condition is not true of a draw."""
    parts = _CONDITION.fullmatch(condition)
    if parts is None:
        return f"{condition!r} is no condition; write `a <= b`, or with one of >=, <, >"
    sides = []
    for side in (parts[1], parts[3]):
        found = evidence.evaluate(of_expression(side.strip(), names))
        if found.error:
            return f"{condition}: {found.error}"
        sides.append(numeric(found.result) if isinstance(found.result, Value) else found.result)
    return None if _RELATIONS[parts[2]](*sides) else f"outside the domain, {condition}"
