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

from generator.content.cases import bind_expression
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


def mistakes(question: Item, evidence: Evidence) -> Iterator[Found]:
    """What is wrong with the draws of an item, at each place once and with the draw."""
    if not isinstance(question, Drawable) or question.draws is None or evidence.reference:
        return
    problems = dict(_of_law(question.as_written, question.draws, evidence))
    for draw in question.draws.shuffled(question.id):
        called = ", ".join(f"{name} = {value}" for name, value in draw.items())
        for path, problem in _of_draw(
            question.as_written, question.draws, short_names(draw), evidence
        ):
            problems.setdefault(path, f"draw {called}: {problem}")
    yield from problems.items()


def _are_counts(*values: Value) -> bool:
    """Whether all are printed to their last digit, so that none is rounded."""
    return all(str(one).replace(",", "") == f"{numeric(one):.0f}" for one in values)


def _of_law(question: Drawable, draws: Draws, evidence: Evidence) -> Iterator[Found]:
    """Whether the key is the law: with the settings of its run, it is what the law predicts."""
    claim = evidence.book.claims.get(draws.law)
    if claim is None:
        return  # said where it is named
    judged, run = evidence.judged(draws.law), {"run": claim.run} if claim.run else {}
    if judged.verdict != "holds":
        yield ("draws", "law"), f"{draws.law!r} does not hold"
    path, key = next(question.answer_expressions())
    measured = {
        name: f"({bind_expression(expression, run)})"
        for name, expression in draws.measured_with.items()
    }
    evaluation, predicted = evidence.evaluate(bind_expression(key, measured)), judged.predicted
    if not isinstance(evaluation.result, Value):
        yield ("draws", "measured_with"), f"of the key {key}: {evaluation.error}"
    elif predicted is None or isinstance(predicted.number, str):
        yield ("draws", "law"), f"{draws.law!r} predicts no single number"
    elif abs(numeric(evaluation.result) - predicted.number) > _BLUR * abs(predicted.number):
        both = f"it is {evaluation.result}, and the law {draws.law!r} predicts {predicted}"
        yield path, f"with the settings of its run {both}"


def _of_draw(
    question: Drawable, draws: Draws, names: Mapping[str, str], evidence: Evidence
) -> Iterator[Found]:
    """What is wrong with one draw."""
    values = []
    for path, expression in question.answer_expressions():
        evaluation = evidence.evaluate(bind_expression(expression, names))
        if not isinstance(evaluation.result, Value):
            yield path, f"{expression}: {evaluation.error}"
            return
        values.append((path, evaluation.result))
    for place, condition in enumerate(draws.domain):
        if problem := _broken(condition, names, evidence):
            yield ("draws", "domain", place), problem
    path, key = values[0]
    if problem := _outside(key):
        yield path, f"the answer is {key}, {problem}, so the law does not apply"
    tolerance = getattr(question, "tolerance", None)  # of a number that is typed
    for (_, value), (path, other) in combinations(values, 2):
        largest = max(abs(numeric(value)), abs(numeric(other)))
        rounded = 0 if _are_counts(value, other) else _ROUNDED * largest
        within = max(rounded, tolerance.slack(largest) if tolerance else 0)
        is_near = is_alike(value, other) and abs(numeric(value) - numeric(other)) <= within
        if is_near or str(value) == str(other):
            clash = "two right answers" if value is key else "two answers alike"
            yield path, f"{clash}: {value} and {other}, apart by no more than rounding"


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
    difference = evidence.evaluate(bind_expression(f"{parts[1]} - ({parts[3]})", names))
    if not isinstance(difference.result, Value):
        return f"{condition}: {difference.error}"
    is_true = _RELATIONS[parts[2]](numeric(difference.result), 0)
    message = f"outside the domain, {condition}; change the sets, all draws of which must be inside"
    return None if is_true else message
