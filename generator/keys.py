"""Items → keys: what is right on this book's runs, worked out and never typed.

In: an item, the verdicts on claims, the evidence. Out: a `Key`, or the author's mistake.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from generator.errors import ContentError
from generator.quiz import (
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
    Slip,
)
from generator.value import AbsentError, Value, numeric
from generator.verdicts import Outcome

if TYPE_CHECKING:
    from generator.evidence import Evidence


@dataclass(frozen=True)
class Key:
    """What is right.

    Attributes:
        is_open: this machine's runs leave it open, so pages show no key.
        right: choice, several: the right options. order: the pieces' positions in the right order.
            match: for each pair its own position. faulty_line: the line at fault.
        value: number, predict, complete: the value asked for.
        slips: number, predict, complete: what each slip gives, in the order written; None where
            this machine lacks it.
    """

    is_open: bool = False
    right: tuple[int, ...] = ()
    value: Value | None = None
    slips: tuple[Value | None, ...] = ()


OPEN = Key(is_open=True)


def key_of(item: Item, evidence: Evidence) -> Key:
    """Work out the key of an item.

    Raises:
        ContentError: the item has no key, or two where one is asked for.
    """
    if isinstance(item, Choice):
        return _of_choice(item, evidence)
    if isinstance(item, Several):
        return _of_several(item, evidence)
    if isinstance(item, Order):
        return _of_order(item, evidence)
    if isinstance(item, Match):
        return Key(right=tuple(range(len(item.pairs))))
    if isinstance(item, FaultyLine):
        return Key(right=(faulty_line(item, evidence),))
    asked = _asked_for(item)
    value = _value(evidence, asked)
    if value is None:
        return OPEN
    return Key(value=value, slips=tuple(_value(evidence, slip.gives) for slip in item.slips))


def _asked_for(item: Number | Predict | Complete) -> str:
    if isinstance(item, Complete):
        return item.rows[item.blank.row - 1].cells[item.blank.column - 1]
    return item.answer


def _value(evidence: Evidence, expression: str) -> Value | None:
    try:
        found = evidence.value(expression)
    except AbsentError:
        return None
    return found if isinstance(found, Value) and not found.absent else None


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
    if right:
        texts = " and ".join(repr(item.options[i].text) for i in right)
        said = f"item {item.id!r} has {len(right)} keys: {texts} ({_said(outcomes)})"
        raise ContentError("", 0, 0, said)
    if any(not outcome.on_reference for outcome in outcomes.values()):
        return OPEN
    raise ContentError(
        "", 0, 0, f"item {item.id!r} has no key ({_said(outcomes) or 'no right_if'})"
    )


def _of_several(item: Several, evidence: Evidence) -> Key:
    outcomes = _judged(item.options, evidence)
    right = _right(item.options, outcomes)
    if 0 < len(right) < len(item.options):
        return Key(right=tuple(right))
    if any(not outcome.on_reference for outcome in outcomes.values()):
        return OPEN
    amount = "every option is" if right else "no option is"
    raise ContentError("", 0, 0, f"item {item.id!r}: {amount} right ({_said(outcomes)})")


def _of_order(item: Order, evidence: Evidence) -> Key:
    if item.run is not None:
        return _as_recorded(item, evidence)
    values = [_value(evidence, piece.by) if piece.by else None for piece in item.pieces]
    for piece in item.pieces:
        if piece.by is None:
            raise ContentError("", 0, 0, f"item {item.id!r}: {piece.text!r} has no by:")
    if any(value is None for value in values):
        return OPEN
    numbers = [numeric(value) for value in values if value is not None]
    if len(set(numbers)) != len(numbers):
        raise ContentError("", 0, 0, f"item {item.id!r}: two pieces have the same value")
    order = sorted(range(len(numbers)), key=numbers.__getitem__, reverse=item.descending)
    return Key(right=tuple(order))


def _as_recorded(item: Order, evidence: Evidence) -> Key:
    assert item.run is not None
    run = evidence.book.run(item.run)
    if run is None or run.status == "skipped":
        return OPEN
    recorded = [stage.name for stage in run.stages] or []
    if not all(piece.recorded in recorded for piece in item.pieces):
        recorded = [step.name for step in run.prediction]
    lost = [piece.recorded for piece in item.pieces if piece.recorded not in recorded]
    if lost:
        said = f"item {item.id!r}: {item.run} recorded no stage or step {lost[0]!r}"
        raise ContentError("", 0, 0, said)
    places = [recorded.index(str(piece.recorded)) for piece in item.pieces]
    return Key(right=tuple(sorted(range(len(places)), key=places.__getitem__)))


def faulty_line(item: FaultyLine, evidence: Evidence) -> int:
    """The position among `lines` of the one that the mended program no longer has.

    Raises:
        ContentError: none of them was mended, more than one was, or one is not in the program.
    """
    root = evidence.book.root
    wrong, right = (
        [line.strip() for line in (root / one.path).read_text(encoding="utf-8").splitlines()]
        for one in (item.wrong, item.right)
    )
    for line in item.lines:
        if wrong.count(line.code.strip()) != 1:
            said = f"item {item.id!r}: {line.code!r} does not stand exactly once in the program"
            raise ContentError("", 0, 0, said)
    gone = {line[2:] for line in difflib.ndiff(wrong, right) if line.startswith("- ")}
    found = [i for i, line in enumerate(item.lines) if line.code.strip() in gone]
    if len(found) != 1:
        said = f"item {item.id!r}: {len(found)} of its lines differ in the mended program, not one"
        raise ContentError("", 0, 0, said)
    return found[0]


def slips_of(item: Item) -> list[Slip]:
    """Every slip of an item, of its options too."""
    own = list(getattr(item, "slips", ()))
    return own + [o.slip for o in getattr(item, "options", ()) if o.slip is not None]
