"""Items → keys: what is right on this book's runs, worked out and never typed.

In: an item, the verdicts on claims, the evidence. Out: a `Key`, or the author's mistake. What is a
mistake where the book was written (two right options, two equal values) only leaves a question open
where another machine's runs came out differently.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from generator.content.claim import Tolerance
from generator.content.errors import ContentError, nearest
from generator.content.listed_code import misplaced, source
from generator.content.quiz import (
    Choice,
    Complete,
    FaultyLine,
    Item,
    Match,
    Number,
    Option,
    Order,
    Predict,
    Several,
)
from generator.content.yaml_source import Path
from generator.evidence.value import AbsentError, Value, numeric
from generator.evidence.verdicts import UNDECIDED, Outcome

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence


class ItemError(ContentError):
    """A mistake inside an item, at a path that starts at the item."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__("", 0, 0, message)
        self.path = path


@dataclass(frozen=True)
class Key:
    """What is right.

    Attributes:
        is_open: this machine's runs leave it open, so pages show no key.
        right: choice, several: the right options. order: the pieces' positions in the right order.
            match: for each pair its own position. faulty_line: the line at fault.
        value: number, predict, complete: the value asked for.
        slips: number, predict, complete: what each slip gives, in the order written; None where
            this machine lacks it, or where here it comes to the answer itself.
        ends: predict: the slider's ends; None where this machine's answer lies beyond them.
    """

    is_open: bool = False
    right: tuple[int, ...] = ()
    value: Value | None = None
    slips: tuple[Value | None, ...] = ()
    ends: tuple[Value, Value] | None = None


OPEN = Key(is_open=True)


def key_of(item: Item, evidence: Evidence) -> Key:
    """Work out the key of an item.

    Raises:
        ItemError: the item has no key, or two where one is asked for.
        ContentError: one of its expressions fails.
    """
    return evidence.once("key", item, lambda: _key_of(item, evidence))


def _key_of(item: Item, evidence: Evidence) -> Key:
    if isinstance(item, Choice):
        return _of_choice(item, evidence)
    if isinstance(item, Several):
        return _of_several(item, evidence)
    if isinstance(item, Order):
        return _of_order(item, evidence)
    if isinstance(item, Match):
        return _of_match(item, evidence)
    if isinstance(item, FaultyLine):
        return Key(right=(faulty_line(item, evidence),))
    return _of_value(item, evidence)


def shown_order(item: Item, key: Key) -> tuple[int, ...]:
    """The order in which a page shows options, pieces or right sides, as positions written.

    It follows from the item's id alone, so that where an author writes the key says nothing. Two
    options (yes and no) and the lines of a program stay as written; pieces and right sides never
    stand in their right order from the start.
    """
    if isinstance(item, Choice | Several):
        num, right = len(item.options), None
    elif isinstance(item, Order | Match):
        num = len(item.pieces if isinstance(item, Order) else item.pairs)
        right = key.right or None
    else:
        return tuple(range(len(item.lines))) if isinstance(item, FaultyLine) else ()
    if num == 2:
        return (0, 1)
    attempt = 0
    while (order := _shuffled(item.id, num, attempt)) == right:
        attempt += 1
    return order


def _shuffled(name: str, num: int, attempt: int) -> tuple[int, ...]:
    def place(position: int) -> bytes:
        return hashlib.sha256(f"{name} {attempt} {position}".encode()).digest()

    return tuple(sorted(range(num), key=place))


def slack(tolerance: Tolerance | None, around: Value) -> float:
    """How far from a value an answer may lie and still be that value."""
    if tolerance is None or isinstance(around.number, str):
        return 0.0
    return tolerance.slack(around.number)


def is_reference(evidence: Evidence, *values: Value | None) -> bool:
    """Whether all these were measured where the book was written, so that a clash is a mistake."""
    machines = {machine for value in values if value for machine in value.machines}
    return machines <= {evidence.book.reference.name}


def asked_for(item: Number | Predict | Complete) -> tuple[Path, str]:
    """The expression that an item asks for, and where it stands."""
    if not isinstance(item, Complete):
        return ("answer",), item.answer
    row, column = item.blank.row - 1, item.blank.column - 1
    return ("rows", row, "cells", column), item.rows[row].cells[column]


def tolerance_of(item: Number | Predict | Complete) -> Tolerance | None:
    """How far off an answer may be."""
    return item.close if isinstance(item, Predict) else item.tolerance


def value_of(evidence: Evidence, expression: str) -> Value | None:
    """What an expression gives here; None where this machine lacks it.

    Raises:
        ContentError: the expression fails.
    """
    try:
        found = evidence.value(expression)
    except AbsentError:
        return None
    return found if isinstance(found, Value) and not found.absent else None


def _of_value(item: Number | Predict | Complete, evidence: Evidence) -> Key:
    value = value_of(evidence, asked_for(item)[1])
    if value is None:
        return OPEN
    slips = (value_of(evidence, slip.gives) for slip in item.slips)
    told_apart = tuple(
        None if slip is None or is_same(slip, value, tolerance_of(item)) else slip for slip in slips
    )
    key = Key(value=value, slips=told_apart)
    return replace(key, ends=_ends(item, value, evidence)) if isinstance(item, Predict) else key


def is_same(one: Value, other: Value, tolerance: Tolerance | None) -> bool:
    """Whether two values cannot be told apart within a tolerance around the second."""
    if isinstance(one.number, str) or isinstance(other.number, str):
        return str(one) == str(other)
    return abs(one.number - other.number) <= slack(tolerance, other)


def _ends(item: Predict, answer: Value, evidence: Evidence) -> tuple[Value, Value] | None:
    low, high = value_of(evidence, item.low), value_of(evidence, item.high)
    if low is None or high is None or not numeric(low) < numeric(answer) < numeric(high):
        return None
    return low, high


def _right(options: Sequence[Option], outcomes: Mapping[str, Outcome]) -> list[int]:
    return [
        position
        for position, option in enumerate(options)
        if option.right_if is not None
        and outcomes[option.right_if.claim].verdict == option.right_if.verdict
    ]


def _judged(options: Sequence[Option], evidence: Evidence) -> dict[str, Outcome]:
    named = {o.right_if.claim for o in options if o.right_if is not None}
    return {name: evidence.outcome(name) for name in sorted(named)}


def _said(outcomes: Mapping[str, Outcome]) -> str:
    return ", ".join(f"{claim}: {outcome.verdict}" for claim, outcome in outcomes.items())


def _of_choice(item: Choice, evidence: Evidence) -> Key:
    outcomes = _judged(item.options, evidence)
    right = _right(item.options, outcomes)
    if len(right) == 1:
        return Key(right=tuple(right))
    if any(not outcome.on_reference for outcome in outcomes.values()):
        return OPEN
    if right:
        texts = " and ".join(repr(item.options[i].text) for i in right)
        said = f"item {item.id!r} has {len(right)} keys: {texts} ({_said(outcomes)})"
        raise ItemError(("id",), said)
    raise ItemError(("id",), f"item {item.id!r} has no key ({_said(outcomes) or 'no right_if'})")


def _of_several(item: Several, evidence: Evidence) -> Key:
    outcomes = _judged(item.options, evidence)
    if any(outcome.verdict in UNDECIDED for outcome in outcomes.values()):
        return OPEN  # an option that no run decides is neither right nor wrong
    right = _right(item.options, outcomes)
    if 0 < len(right) < len(item.options):
        return Key(right=tuple(right))
    if any(not outcome.on_reference for outcome in outcomes.values()):
        return OPEN
    amount = "every option is" if right else "no option is"
    raise ItemError(("id",), f"item {item.id!r}: {amount} right ({_said(outcomes)})")


def _of_match(item: Match, evidence: Evidence) -> Key:
    sides: dict[str, int] = {}
    for position, pair in enumerate(item.pairs):
        side = evidence.plain(pair.right)
        above = sides.setdefault(side, position)
        if above != position:
            if not evidence.book.is_reference:
                return OPEN
            said = f"the right side is {side!r} here too, as in pair {above + 1}; let them differ"
            raise ItemError(("pairs", position, "right"), said)
    claims = [pair.claim for pair in item.pairs if pair.claim]
    if any(evidence.outcome(claim).verdict != "holds" for claim in claims):
        return OPEN
    return Key(right=tuple(range(len(item.pairs))))


def _of_order(item: Order, evidence: Evidence) -> Key:
    if item.run is not None:
        return _as_recorded(item, item.run, evidence)
    found = [value_of(evidence, piece.by) if piece.by else None for piece in item.pieces]
    values = [value for value in found if value is not None]
    if len(values) < len(found):
        return OPEN
    numbers = [numeric(value) for value in values]
    order = sorted(range(len(numbers)), key=numbers.__getitem__, reverse=item.descending)
    for before, after in pairwise(order):
        if numbers[before] == numbers[after]:
            if not is_reference(evidence, values[before], values[after]):
                return OPEN
            both = f"{item.pieces[before].text!r} and {item.pieces[after].text!r}"
            raise ItemError(("pieces", after, "by"), f"{both} have the same value; no order")
    return Key(right=tuple(order))


def _as_recorded(item: Order, path: str, evidence: Evidence) -> Key:
    run = evidence.book.run(path)
    if run is None or run.status == "skipped" or run.is_surprise:
        return OPEN
    names = [piece.recorded for piece in item.pieces]
    recorded = [stage.name for stage in run.stages]
    if not set(names) & set(recorded):
        recorded = [step.name for step in run.prediction]
    for position, name in enumerate(names):
        if name not in recorded or names.index(name) != position:
            if not evidence.book.is_reference:
                return OPEN
            raise ItemError(("pieces", position, "recorded"), _lost(path, str(name), recorded))
    places = [recorded.index(str(name)) for name in names]
    return Key(right=tuple(sorted(range(len(places)), key=places.__getitem__)))


def _lost(path: str, name: str, recorded: Sequence[str]) -> str:
    if name in recorded:
        return f"{name!r} stands above already"
    return f"{path} recorded no stage or step {name!r}{nearest(name, recorded)}"


def faulty_line(item: FaultyLine, evidence: Evidence) -> int:
    """The position among `lines` of the one that the corrected program no longer has there.

    Raises:
        ItemError: none of them was corrected, more than one was, or one is not in the program.
        ContentError: there is no such program.
    """
    root = evidence.book.root
    try:
        wrong, right = (source(root, one.path, one.object) for one in (item.wrong, item.right))
    except ValueError as error:
        raise ContentError("", 0, 0, str(error)) from None
    for position, line in enumerate(item.lines):
        problem = misplaced(wrong, line.code)
        if problem:
            raise ItemError(("lines", position, "code"), problem)
    gone = _corrected(wrong, right)
    found = [i for i, line in enumerate(item.lines) if line.code.strip() in gone]
    if len(found) != 1:
        differ = f"{len(found)} of its lines differ in the corrected program, not one"
        raise ItemError(("lines",), f"item {item.id!r}: {differ}")
    return found[0]


@lru_cache(maxsize=256)
def _corrected(wrong: str, right: str) -> frozenset[str]:
    """The lines of a program, without their indents, that the corrected one lacks there."""
    before, after = ([line.strip() for line in text.splitlines()] for text in (wrong, right))
    return frozenset(line[2:] for line in difflib.ndiff(before, after) if line.startswith("- "))
