"""Numbers and shapes to type: asked for, or predicted before they are revealed."""

import math
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Literal, TypeVar

from markupsafe import Markup

from proofbook.generator.content.claim import NumberTolerance
from proofbook.generator.content.quiz import Drawable, Item
from proofbook.generator.content.words import Expression, Line, MisconceptionId, Prose, Written
from proofbook.generator.content.yaml_source import Mistake, Path
from proofbook.generator.kinds.questions.answers import ExplainedAnswer, Reach, refutation_of
from proofbook.generator.kinds.questions.kinds import base
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values.units import AS_RULED, PLAIN, printed
from proofbook.generator.values.value import Value, numeric
from proofbook.runners.core.trace.fields import NBSP, SIZES

_CLOSE = 0.04  # of a slider: how far a prediction may be off
_SLIP = 0.01  # the same for the number that a mistake gives


class Slip(Written):
    """A number that a named mistake gives, computed over the same trace as the right one."""

    name: Line
    """what was done wrong, as in “the sum over the ranks instead of their mean”."""
    gives: Expression
    """an expression: the number that it gives."""
    misconception: MisconceptionId | None = None
    why: Line | None = None
    """beyond what the name says."""


class Number(Drawable):
    """A number to type, in the unit that the answer prints in, or a shape such as 50 × 20."""

    kind: Literal["number"]
    answer: Expression
    tolerance: NumberTolerance | None = None
    why: Line
    slips: list[Slip] = []

    def backed_by_law(self, law: str) -> "Number":
        """A copy of the item, with the law as evidence."""
        return self.model_copy(update={"claims": [law, *self.claims]})

    def answer_expressions(self) -> Iterator[tuple[Path, str]]:
        """The answer, and what each mistake gives."""
        yield ("answer",), self.answer
        yield from ((("slips", n, "gives"), slip.gives) for n, slip in enumerate(self.slips))


class Predict(Item):
    """A number to commit to before it is revealed, on a slider or in a field; not graded."""

    kind: Literal["predict"]
    answer: Expression
    low: Expression
    """expressions: the ends of the slider, from which the answer cannot be read."""
    high: Expression
    """expressions: the ends of the slider, from which the answer cannot be read."""
    reveal: Prose
    """the result and its reason, shown after the guess."""
    slips: list[Slip] = []


TypedT = TypeVar("TypedT", bound=Number | Predict)


class TypedNumber(base.QuestionKind[TypedT], of=Number):
    """A value, how far off an answer may be, and what each named mistake would give."""

    instruction = "type the answer"

    @property
    def digest_source(self) -> str:
        """The expression without white space; not its value, which a rerun changes."""
        return "".join(self.item.answer.split())

    @cached_property
    def key(self) -> base.Key:
        """A `Key`: the value, and the slips that can be told from it and from each other."""
        value = self.evidence.value(self.item.answer)
        if value is None:
            return base.OPEN
        return base.Key(value=value, slips=tuple(gives for gives, _ in self._judged(value)))

    def _judged(self, answer: Value) -> Iterator[tuple[Value | None, str]]:
        """For each slip its value, or None with the reason why it is not told apart."""
        above = [("the answer", answer)]
        for number, slip in enumerate(self.item.slips, 1):
            value = self.evidence.value(slip.gives)
            if value is None:
                yield None, ""
                continue
            same = next((named for named in above if self._is_same(value, named[1], answer)), None)
            if not base.is_alike(value, answer):
                yield None, f"the slip is in {value.unit}, the answer in {answer.unit}"
            elif same is None:
                yield value, ""
                above.append((f"slip {number}", value))
            else:
                which = f"{same[0]} ({same[1]})"
                message = f"the slip is {value}, which is {which} within the tolerance"
                clashes = self.is_decided
                yield None, f"{message}; a reader's mistake could not be told" if clashes else ""

    def _is_same(self, value: Value, other: Value, answer: Value) -> bool:
        """Whether two values cannot be told apart within the tolerance around the second."""
        if isinstance(value.number, str) or isinstance(other.number, str):
            return str(value) == str(other)
        return abs(value.number - other.number) <= self._slack(other, is_slip=other is not answer)

    def _slack(self, around: Value, *, is_slip: bool = False) -> float:
        tolerance = self.item.tolerance if isinstance(self.item, Number) else None
        if tolerance is None or isinstance(around.number, str):
            return 0.0
        return tolerance.slack(around.number)

    def _reach(self, value: Value, *, is_slip: bool = False) -> Reach:
        """How an answer is compared with a value."""
        if isinstance(value.number, str):
            return Reach(None, words=value.number)
        rounded = abs(abs(value.number) - _parts(value)[0] * unit_of(value).scale)
        return Reach(value.number, max(self._slack(value, is_slip=is_slip), rounded))

    def key_mistakes(self) -> Iterator[Mistake]:
        """Yield (path, message): an answer nobody could type, slips that are not told apart."""
        answer = self.key.value
        if answer is None:
            return
        yield from self._unsound(answer)
        for number, (_, problem) in enumerate(self._judged(answer)):
            if problem:
                yield ("slips", number, "gives"), problem

    def _unsound(self, answer: Value) -> Iterator[Mistake]:
        if isinstance(answer.number, str) and not re.search(r"\d", answer.number):
            yield ("answer",), f"the answer is {str(answer)!r}, not a number"
        assert isinstance(self.item, Number)
        if self.item.tolerance is None and isinstance(answer.number, float):
            yield ("answer",), "the answer is no whole number; say in tolerance: how near is right"

    def answers(self, folio: Folio) -> tuple[ExplainedAnswer, ...]:
        """`ExplainedAnswer`s: the answer, each slip told apart; without a value, an open answer."""
        value = self.key.value
        why = folio.line(self.item.why) if isinstance(self.item, Number) else Markup()
        if value is None:
            return (ExplainedAnswer(Markup(), why, "open", folio.ui["item"]["open"]),)
        sentence = Markup("That is {}. {}")
        slips = (
            ExplainedAnswer(
                folio.show(gives),
                sentence.format(folio.line(slip.name), folio.line(slip.why or "")).rstrip(),
                "wrong", "A mistake would give:", place, refutation_of(slip.misconception, folio),
                reach=self._reach(gives, is_slip=True),
            )
            for place, slip in enumerate(self.item.slips)
            if (gives := self.key.slips[place]) is not None
        )  # fmt: skip
        answer = ExplainedAnswer(
            folio.show(value), why, "right", "The answer:", reach=self._reach(value)
        )
        return (answer, *slips)

    def field(self, folio: Folio) -> base.AnswerField | None:
        """A field, in the unit that the answer prints in."""
        value = self.key.value
        return (
            base.AnswerField(unit_of(value), not isinstance(value.number, str)) if value else None
        )


class Prediction(TypedNumber[Predict], of=Predict):
    """A number to commit to, on a slider or in a field; a prediction near it was close."""

    instruction = "predict a number, then see"
    is_graded = False

    @property
    def explains(self) -> str:
        """Explanation: `reveal`."""
        return self.item.reveal

    @property
    def _bounds(self) -> tuple[Value | None, ...]:
        return self.evidence.value(self.item.low), self.evidence.value(self.item.high)

    @property
    def ends(self) -> tuple[Value, Value] | None:
        """The slider's (low, high); None if either is missing or the answer is not between them."""
        low, high = self._bounds
        if self.key.value is None or low is None or high is None:
            return None
        is_between = numeric(low) < numeric(self.key.value) < numeric(high)
        return (low, high) if is_between else None

    def _slack(self, around: Value, *, is_slip: bool = False) -> float:
        low, high = self._bounds
        if low is None or high is None:
            return 0.0
        return (_SLIP if is_slip else _CLOSE) * (numeric(high) - numeric(low))

    def _unsound(self, answer: Value) -> Iterator[Mistake]:
        if isinstance(answer.number, str):
            yield ("answer",), f"the answer is {str(answer)!r}, not a number"
            return
        low, high = self._bounds
        ends = (("low", low), ("high", high))
        odd = next((name for name, end in ends if not end or not base.is_alike(end, answer)), None)
        if odd:
            yield (odd,), f"{odd} is a number in the unit of the answer ({answer.unit})"
        elif self.ends is None and self.is_decided:
            yield ("low",), f"the answer does not lie between {low} and {high}"
        elif self.ends and self.is_decided and not self._is_reached(answer):
            yield ("high",), f"no step of the slider from {low} to {high} is near {answer}"

    def _is_reached(self, answer: Value) -> bool:
        """Whether a step of the slider is close, of those that assets/kinds.js sets."""
        scale, within = unit_of(answer).scale, self._reach(answer).within
        low, high = (numeric(end) / scale for end in self.ends or ())
        steps = (float(f"{low + (high - low) * step / 100:.2g}") for step in range(101))
        return any(abs(step * scale - numeric(answer)) <= within for step in steps)

    def field(self, folio: Folio) -> base.AnswerField | None:
        """An `AnswerField`, with the slider's ends, if there are any; None for an open key."""
        field, ends = super().field(folio), self.ends
        if field is None or ends is None:
            return field
        low, high = (
            base.End(numeric(end), in_unit(end, field.unit), folio.show(end)) for end in ends
        )
        return field._replace(ends=(low, high))


# --- the unit that a number is asked in, and how near it has to be


def unit_of(value: Value) -> base.FieldUnit:
    """A `FieldUnit` of what a value prints in: label, size in base units; '' and 1 for text."""
    if isinstance(value.number, str):
        return base.FieldUnit("", 1)
    mantissa, label = _parts(value)
    ratio = abs(value.number) / mantissa if mantissa else 1
    return base.FieldUnit(label, dict(SIZES).get(label) or 10.0 ** round(math.log10(ratio)))


def in_unit(value: Value, unit: base.FieldUnit) -> str:
    """A value as a reader would type it: in the unit asked for, without zeros that say nothing."""
    number = printed(numeric(value) / unit.scale, PLAIN, AS_RULED)
    short = number.rstrip("0").rstrip(".") if "." in number else number
    return f"{short}{'' if unit.label in ('', '%') else NBSP}{unit.label}"


def _parts(value: Value) -> tuple[float, str]:
    """The number and the unit that a value prints."""
    first, _, label = str(value).removeprefix("−").partition(NBSP)
    digits = first.rstrip("%")
    return float(digits.replace(",", "")), label.replace(NBSP, " ") or first[len(digits) :]
