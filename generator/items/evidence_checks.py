"""Items checked against the runs: whether each has its key, its evidence, and numbers told apart.

In: an item and the evidence. Out: what is wrong, each at a path that starts at the item. What an
expression or a name lacks is said where it is written, by `checks.py`, and not again here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from generator.content import prose
from generator.content.errors import ContentError
from generator.content.listed_code import source
from generator.content.quiz import Complete, FaultyLine, Item, Match, Number, Order, Predict
from generator.content.yaml_source import Path
from generator.evidence import units
from generator.evidence.filters import LABELS
from generator.evidence.value import ExpressionError, Value, numeric
from generator.items.keys import (
    ItemError,
    asked_for,
    is_reference,
    is_same,
    key_of,
    tolerance_of,
    value_of,
)

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence

Found = tuple[Path, str]
_LABEL = re.compile(rf"(?:{'|'.join(LABELS)})\s*\(")  # names something, and states nothing of it


def mistakes(item: Item, evidence: Evidence) -> Iterator[Found]:
    """Everything in an item that the runs do not bear out."""
    for path, claim in _claimed(item):
        problem = unheld(evidence, claim)
        if problem:
            yield path, problem
    structural = list(_BY_KIND.get(item.kind, _nothing)(item))
    yield from structural
    if not structural:
        yield from _quietly(_key, item, evidence)
        yield from _quietly(_numbers, item, evidence)


def _quietly(
    check: Callable[[Any, Evidence], Iterator[Found]], item: Item, evidence: Evidence
) -> Iterator[Found]:
    """What a check finds, unless something fails that is said where it is written."""
    try:
        yield from list(check(item, evidence))
    except ItemError as error:
        yield error.path, error.message
    except (ContentError, ExpressionError, units.UnitError):
        return


def unheld(evidence: Evidence, claim: str) -> str | None:
    """Why a claim backs nothing, though it is shown as evidence where the book was written."""
    if claim not in evidence.book.claims:
        return None
    outcome = evidence.outcome(claim)
    if outcome.verdict == "holds" or not outcome.on_reference:
        return None
    runs = filter(None, map(evidence.book.run, outcome.runs))
    if any(run.is_surprise for run in runs):
        return None  # pages show it in red, and a strict build refuses the run itself
    return f"claim {claim!r} shows nothing: {outcome.verdict}, {outcome.explanation}"


def _claimed(item: Item) -> Iterator[tuple[Path, str]]:
    """The claims that an item shows as evidence, beside those that decide its key."""
    for number, claim in enumerate(item.claims):
        yield ("claims", number), claim
    for number, option in enumerate(getattr(item, "options", ())):
        if option.refuted_by:
            yield ("options", number, "refuted_by"), option.refuted_by
    for number, pair in enumerate(getattr(item, "pairs", ())):
        if pair.claim:
            yield ("pairs", number, "claim"), pair.claim


def _nothing(_: Any) -> Iterator[Found]:  # noqa: ANN401
    return iter(())


def _order(item: Order) -> Iterator[Found]:
    """Pieces stand in order by a value each, or all as one run recorded them."""
    wanted, other = ("recorded", "by") if item.run else ("by", "recorded")
    for number, piece in enumerate(item.pieces):
        if getattr(piece, wanted) is None:
            how = "as its run: recorded them" if item.run else "by a value each"
            yield ("pieces", number), f"the pieces stand in order {how}; this one needs {wanted}:"
        if getattr(piece, other) is not None:
            why = "the item names a run:" if item.run else "the item names no run:"
            yield ("pieces", number, other), f"{why} so it takes {wanted}: here, not {other}:"


def _match(item: Match) -> Iterator[Found]:
    for number, pair in enumerate(item.pairs):
        printed = [one.text for one in prose.expressions(pair.right)]
        if not pair.claim and all(_LABEL.match(text) for text in printed):
            message = "nothing backs this pair; print a value in right: or name its claim:"
            yield ("pairs", number), message


def _faulty_line(item: FaultyLine) -> Iterator[Found]:
    for part in ("wrong", "right"):
        if getattr(item, part).run is None:
            yield (part,), "name under run: the run that executed this program"


_BY_KIND: dict[str, Callable[[Any], Iterator[Found]]] = {
    "order": _order,
    "match": _match,
    "faulty_line": _faulty_line,
}


def _key(item: Item, evidence: Evidence) -> Iterator[Found]:
    """An item without a key, or with two; lines that are not in the order of the program."""
    key_of(item, evidence)
    if isinstance(item, FaultyLine):
        code = source(evidence.book.root, item.wrong.path, item.wrong.object).splitlines()
        stripped = [line.strip() for line in code]
        places = [stripped.index(line.code.strip()) for line in item.lines]
        for number, (before, after) in enumerate(pairwise(places), 1):
            if after < before:
                yield ("lines", number, "code"), "write the lines in the order of the program"


def _numbers(item: Item, evidence: Evidence) -> Iterator[Found]:
    """An answer that is no number, a slip that is no slip, a slider without the answer on it."""
    if not isinstance(item, Number | Predict | Complete):
        return
    path, expression = asked_for(item)
    answer = value_of(evidence, expression)
    if answer is None:
        return
    if isinstance(answer.number, str) and not isinstance(item, Complete):
        yield path, f"the answer is {str(answer)!r}, not a number"
        return
    if isinstance(item, Complete) and item.tolerance is None and isinstance(answer.number, float):
        yield ("blank",), "the missing value is measured; say in tolerance: how near is right"
    if isinstance(item, Predict):
        yield from _slider(item, answer, evidence)
    yield from _slips(item, answer, evidence)


def _slider(item: Predict, answer: Value, evidence: Evidence) -> Iterator[Found]:
    low, high = value_of(evidence, item.low), value_of(evidence, item.high)
    for name, end in (("low", low), ("high", high)):
        if end is None or isinstance(end.number, str) or not _is_alike(end, answer):
            yield (name,), f"{name} is a number in the unit of the answer ({answer.unit})"
            return
    assert low is not None
    assert high is not None
    if not is_reference(evidence, low, answer, high):
        return
    for name, lies_right in (
        ("low", numeric(low) < numeric(answer)),
        ("high", numeric(answer) < numeric(high)),
    ):
        if not lies_right:
            end = low if name == "low" else high
            side = "below" if name == "low" else "above"
            yield (name,), f"{name} is {end}; it must lie {side} the answer"
    if item.logarithmic and numeric(low) <= 0:
        yield ("low",), f"low is {low}; a logarithmic slider starts above nothing"


def _slips(item: Number | Predict | Complete, answer: Value, evidence: Evidence) -> Iterator[Found]:
    """Each slip stands for one mistake: it is not the answer, and no other slip."""
    tolerance, above = tolerance_of(item), [("the answer", answer)]
    for number, slip in enumerate(item.slips):
        value, path = value_of(evidence, slip.gives), ("slips", number, "gives")
        if value is None:
            continue
        if not _is_alike(value, answer):
            yield path, f"the slip is in {value.unit}, the answer in {answer.unit}"
            continue
        for name, other in above:
            if is_same(value, other, tolerance) and is_reference(evidence, value, other):
                said = f"is {value}, which is {name} ({other}) within the tolerance"
                yield path, f"the slip {said}; a reader's mistake could not be told"
        above.append((f"slip {number + 1}", value))


def _is_alike(one: Value, other: Value) -> bool:
    """Whether two values are numbers that can be compared, or both are words."""
    if "text" in (one.unit.style, other.unit.style):
        return one.unit == other.unit
    try:
        units.of_sum(one.unit, other.unit)
    except units.UnitError:
        return False
    return True
