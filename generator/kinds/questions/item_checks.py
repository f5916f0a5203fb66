"""Items against the runs: whether each has its key and its evidence, in every case and every draw.

In: an item and the evidence. Out: what is wrong, each at a path that starts at the item, and the
other cases that Recall may ask, so that it asks the concept again and not the same numbers. What an
expression or a name lacks is said where it is written, by `checks/`, and not again here. On each
draw one answer is right, no two are as near each other as rounding brings them, and the law holds:
what `domain:` says is true, bytes and counts are whole, and none is negative. With the settings of
the law's run, the key is what the law predicts.
"""

import operator
import re
from collections.abc import Iterator, Mapping
from itertools import combinations

from proofbook.generator.content.documents import fields_of
from proofbook.generator.content.draws import Draws
from proofbook.generator.content.errors import ContentError
from proofbook.generator.content.quiz import Drawable, Item
from proofbook.generator.content.yaml_source import Mistake
from proofbook.generator.kinds.questions.kinds import kind_of
from proofbook.generator.kinds.questions.kinds.base import ItemError, is_alike
from proofbook.generator.values import units
from proofbook.generator.values.evaluation import Evidence, verdict_words
from proofbook.generator.values.perturbed import why_not_stated
from proofbook.generator.values.value import AbsentError, ExpressionError, Value, numeric

_DECIDE = ("answer", "gives", "by")  # expressions that are a key, or judge an answer


def mistakes(question: Item, evidence: Evidence) -> Iterator[Mistake]:
    """Yield (path, message): claims that do not hold, empty logs, typed keys, mistakes of keys."""
    for path, claim in kind_of(question, evidence).shown_claims():
        problem = why_unheld(evidence, claim)
        if problem:
            yield path, problem
    exhibit = question.exhibit
    log = evidence.book.run(exhibit.log) if exhibit and exhibit.log else None
    if log and evidence.reference is None and not (log.printed or log.error):
        yield ("exhibit", "log"), "this run printed nothing; choose one that a program printed in"
    yield from _asserted(question, evidence)
    try:
        yield from kind_of(question, evidence).key_mistakes()
    except ItemError as error:
        yield error.path, error.message
    except (ContentError, ExpressionError, units.UnitError):
        return  # said where it is written


def _asserted(question: Item, evidence: Evidence) -> Iterator[Mistake]:
    """Keys stated by the author: refused in a book, elsewhere only with a source."""
    message = "nothing shows this; compute it, or say under source: of the item where it stands"
    if evidence.rests_on_runs:
        message = "a key of a book follows from its claims and expressions"
        if question.source:
            yield ("source",), message
    elif question.source:
        return
    for number, option in enumerate(getattr(question, "options", ())):
        if option.right is not None:
            yield ("options", number, "right"), message
    for field in fields_of(question):
        if field.path[-1] in _DECIDE and evidence.prints_typed_number(field.text):
            yield field.path, message


def why_unheld(evidence: Evidence, claim: str) -> str | None:
    """Message if a claim does not hold on the reference machine and no run surprised, or None."""
    if claim not in evidence.book.claims:
        return None
    outcome = evidence.judged(claim)
    if outcome.verdict == "holds" or evidence.reference:
        return None
    runs = filter(None, map(evidence.book.run, outcome.runs))
    if any(run.is_surprise for run in runs):
        return None  # pages show it in red, and a strict build refuses the run itself
    return f"rests on claim {claim!r}: {verdict_words(outcome.verdict)} ({outcome.explanation})"


# --- the other cases of an item


def answerable_cases(question: Item, evidence: Evidence) -> Iterator[tuple[int, Item]]:
    """Yield (number from 1, `Item`) of further cases that have a key and read unlike the first.

    On another machine than the reference, a case may have come out otherwise: then it is not asked.
    A case shows no evidence on runs of the first case alone.
    """
    others: tuple[Item, ...] = question.others
    for number, other in enumerate(others, 1):
        if not any(_misleading(question, other, evidence)):
            cases = question.cases or [{}] * (number + 1)  # of drawn numbers, the law is the same
            first, own = (set(cases[n].values()) for n in (0, number))
            runs = {claim: {*evidence.judged(claim).runs} for claim in other.claims}
            claims = [claim for claim in other.claims if not (first - own) & runs[claim]]
            yield number, other.model_copy(update={"claims": claims})


def mistakes_of_case(question: Item, other: Item, evidence: Evidence) -> list[str]:
    """List of messages on a further case: missing evidence, else mistakes, else why it misleads."""
    problems = list(missing_evidence(other, evidence))
    if not problems:  # two slips may come to the same in one case, and be told apart in the first
        problems = [message for path, message in mistakes(other, evidence) if path[0] != "slips"]
    if not problems and evidence.reference is None:
        problems = list(_misleading(question, other, evidence))
    return problems


def missing_evidence(other: Item, evidence: Evidence) -> Iterator[str]:
    """Yield messages on an item: texts that read missing values, unknown claims and figures."""
    for field in fields_of(other):
        if field.mark == "claim" and field.text not in evidence.book.claims:
            yield evidence.book.claim_index.why_unknown(field.text)
        elif field.mark == "lesson figure" and other.id not in evidence.book.exhibited:
            yield f"no lesson figure {field.text!r}"
        for expression in field.expressions:
            if problem := why_not_stated(evidence, expression):
                yield f"{expression}: {problem}"


def _misleading(question: Item, other: Item, evidence: Evidence) -> Iterator[str]:
    """Why a case is not asked, as the runs came out."""
    case, first = (kind_of(variant, evidence) for variant in (other, question))
    try:
        key, own = case.key, first.key
        texts, as_first = case.visible_texts, case.visible_texts == first.visible_texts
    except (ContentError, ExpressionError, AbsentError) as error:
        yield str(error)
        return
    if key.is_open:
        yield "no single answer is right in this case on the runs shown"
    elif case.has_one_key and own.right not in ((), key.right):
        yield "another answer is right in this case; write it as an item of its own"
    elif case.has_one_key and len(set(texts[1:])) < len(texts) - 1:
        yield "two options read alike in this case; choose runs that differ"
    elif as_first:
        yield "this case reads like the first; choose runs that differ"


_ROUNDED = 0.01  # as a share of the larger number: three digits are printed
_BLUR = 1e-12  # of numbers that were divided and multiplied
_CONDITION = re.compile(r"([^<>=]+)(<=|>=|<|>)([^<>=]+)")
_RELATIONS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}


def draw_mistakes(question: Item, evidence: Evidence) -> Iterator[Mistake]:
    """Yield (path, message): a key that differs from its law; at other paths the first bad draw."""
    if not isinstance(question, Drawable) or question.draws is None or evidence.reference:
        return
    problems = dict(_of_law(question.as_written, question.draws, evidence))
    for draw in question.draws.shuffled(question.id):
        called = ", ".join(f"{name} = {value}" for name, value in draw.items())
        values = {name: evidence.drawn(name, quantity) for name, quantity in draw.items()}
        for path, problem in _of_draw(question.as_written, question.draws, values, evidence):
            problems.setdefault(path, f"draw {called}: {problem}")
    yield from problems.items()


def _of_law(question: Drawable, draws: Draws, evidence: Evidence) -> Iterator[Mistake]:
    """Whether the key is the law: with the settings of its run, it is what the law predicts."""
    claim = evidence.book.claims.get(draws.law)
    if claim is None:
        return  # said where it is named
    judged = evidence.judged(draws.law)
    if judged.verdict != "holds":
        yield ("draws", "law"), f"{draws.law!r} does not hold"
    path, key = next(question.answer_expressions())
    settings = {
        name: evidence.evaluate(setting, claim.run) for name, setting in draws.measured_with.items()
    }
    failed = (setting for setting in settings.values() if setting.error or setting.absent)
    measured = {name: setting.result for name, setting in settings.items()}
    evaluation = next(failed, None) or evidence.evaluate_with(measured, key)
    predicted = judged.predicted
    if not isinstance(evaluation.result, Value):
        yield ("draws", "measured_with"), f"of the key {key}: {evaluation.error}"
    elif predicted is None or isinstance(predicted.number, str):
        yield ("draws", "law"), f"{draws.law!r} predicts no single number"
    elif abs(numeric(evaluation.result) - predicted.number) > _BLUR * abs(predicted.number):
        both = f"it is {evaluation.result}, and the law {draws.law!r} predicts {predicted}"
        yield path, f"with the settings of its run {both}"


def _of_draw(
    question: Drawable, draws: Draws, names: Mapping[str, Value], evidence: Evidence
) -> Iterator[Mistake]:
    values = []
    for path, expression in question.answer_expressions():
        evaluation = evidence.evaluate_with(names, expression)
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
        pair = [(str(v).replace(",", ""), f"{numeric(v):.0f}") for v in (value, other)]
        are_whole = all(printed == digits for printed, digits in pair)  # so that none is rounded
        rounded = 0 if are_whole else _ROUNDED * largest
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


def _broken(condition: str, names: Mapping[str, Value], evidence: Evidence) -> str | None:
    """Why a condition is not true of a draw."""
    parts = _CONDITION.fullmatch(condition)
    if parts is None:
        return f"{condition!r} is no condition; write `a <= b`, or with one of >=, <, >"
    sides = [evidence.evaluate_with(names, side) for side in (parts[1], parts[3])]
    if failed := next((side for side in sides if side.error), None):
        return f"{condition}: {failed.error}"
    results = {"left": sides[0].result, "right": sides[1].result}
    difference = evidence.evaluate_with(results, "left - right")
    if not isinstance(difference.result, Value):
        return f"{condition}: {difference.error}"
    is_true = _RELATIONS[parts[2]](numeric(difference.result), 0)
    message = f"outside the domain, {condition}; change the sets, all draws of which must be inside"
    return None if is_true else message
