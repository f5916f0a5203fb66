"""A question on other runs: Recall asks the concept again, and not the same numbers.

In: an item, and what is replaced in it, as its author says (`variants:`) or as its laws allow
(`siblings.py`). Out: each time the same item on other runs or of another rank, and what is wrong
with it. Each has a key of its own, worked out from its runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import BaseModel

from generator.content import names, prose
from generator.content.documents import fields_of
from generator.content.errors import ContentError, nearest
from generator.content.quiz import (
    Choice,
    Complete,
    Item,
    Number,
    Order,
    Predict,
    Several,
    Variant,
)
from generator.content.words import marks
from generator.content.yaml_source import Path
from generator.evidence.value import AbsentError, ExpressionError, Value
from generator.items import evidence_checks, siblings
from generator.items.keys import is_same, key_of, tolerance_of, value_of

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence

ModelT = TypeVar("ModelT", bound=BaseModel)
_COUNTS = {
    word: number
    for number, word in enumerate(("two", "three", "four", "five", "six", "seven", "eight"), 2)
}
_COUNT = re.compile(rf"\b(?:{'|'.join(_COUNTS)})\b", re.IGNORECASE)
_RANKS = re.compile(
    rf"\b({'|'.join(_COUNTS)})\b"
    r"(?:(?= (?:equal )?(?:ranks|devices|processes|stages|shards)\b)|(?<=\bpart in \w{3})"
    r"|(?<=\bpart in \w{4})|(?<=\bpart in \w{5}))",
    re.IGNORECASE,
)
# What there are as many of, however many ranks there are.
_OF_NO_RANKS = re.compile(
    r" (?:copies that|directions|layers|missing|moments|numbers for (?:each|every) parameter|"
    r"passes|payloads|quantities|schedules|tensors)\b"
)
_CODE = re.compile(
    r"`(?![^`]*\b[np]\b)[^`]*`"
)  # a formula of `n` or `p` ranks says no number of them
_DIGITS = re.compile(r"(?<![\w.])\d+(?![\w.])")
_RANK = re.compile(r"((?:\branks|by_rank|num_samples|losses)\[|\b[Rr]ank\(|\brank_)(\d+)")
_PRINTED = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_NO_KEY = "this variant has no single answer on the runs shown"


class Ranks(NamedTuple):
    """How many ranks the runs of a question have, and the run of a variant that has others."""

    num: int
    run: str

    def said(self, text: str) -> str:
        """A text whose spelled numbers of ranks are those of the variant."""
        return _RANKS.sub(
            lambda at: f"{{{{ {self.run}.world_size }}}}" if self._is(at[1]) else at[0], text
        )

    def _is(self, word: str) -> bool:
        return _COUNTS[word.lower()] == self.num


def variants_of(item: Item, evidence: Evidence) -> list[Item]:
    """An item on other runs: as the author maps them, or else where its laws were judged too."""
    return evidence.once("variants", item, lambda: _variants_of(item, evidence))


def _variants_of(item: Item, evidence: Evidence) -> list[Item]:
    if item.variants:
        return [
            _variant(item, written, number, evidence)
            for number, written in enumerate(item.variants, 1)
        ]
    found: list[Item] = []
    for runs in siblings.mappings(item, evidence):
        written = Variant(runs=runs)
        variant = _variant(item, written, len(found) + 1, evidence)
        if not any(_wrong(item, written, variant, evidence)):
            found.append(variant)
    return found


def _variant(item: Item, written: Variant, number: int, evidence: Evidence) -> Item:
    named = {"id": f"{item.id}-variant-{number}", "variants": []}
    runs = written.runs
    variant = _on(_reworded(item, written), runs, _ranks(runs, evidence)).model_copy(update=named)
    return _without_clashes(siblings.without_stale_claims(variant, runs, evidence), evidence)


def _without_clashes(variant: Item, evidence: Evidence) -> Item:
    """A variant without the slips that come to the same as another slip on these runs."""
    if not isinstance(variant, Number | Predict | Complete):
        return variant
    known: list[Value] = []
    kept = []
    for slip in variant.slips:
        try:
            value = value_of(evidence, slip.gives)
        except (ContentError, ExpressionError):
            return variant
        if value and any(is_same(value, one, tolerance_of(variant)) for one in known):
            continue
        kept.append(slip)
        known += [value] if value else []
    return variant.model_copy(update={"slips": kept})


def answerable(item: Item, evidence: Evidence) -> Iterator[tuple[int, Item]]:
    """The variants that have exactly one right answer on these runs, each with its number.

    On another machine than the reference, one that an author wrote may have come out so that its
    texts mislead: then it is not asked.
    """
    for number, variant in enumerate(variants_of(item, evidence), 1):
        written = item.variants[number - 1] if item.variants else None
        misleads = written and _misleading(item, written, variant, evidence)
        if not misleads and _is_answerable(variant, evidence):
            yield number, variant


def _is_answerable(variant: Item, evidence: Evidence) -> bool:
    try:
        evidence.plain(variant.stem)
        return not key_of(variant, evidence).is_open
    except (ContentError, ExpressionError, AbsentError):
        return False


def mistakes(item: Item, evidence: Evidence) -> Iterator[tuple[Path, str]]:
    """Everything for which a variant that an author wrote is no question of its own."""
    if not item.variants:
        return
    for number, (written, variant) in enumerate(
        zip(item.variants, variants_of(item, evidence), strict=True)
    ):
        place: Path = ("variants", number)
        wrong = _wrong if evidence.book.is_reference else _unsound
        yield from ((place, message) for message in wrong(item, written, variant, evidence))


def _wrong(item: Item, written: Variant, variant: Item, evidence: Evidence) -> list[str]:
    """Everything for which a variant is no question of its own with one right answer."""
    return _unsound(item, written, variant, evidence) or _misleading(
        item, written, variant, evidence
    )


def _unsound(item: Item, written: Variant, variant: Item, evidence: Evidence) -> list[str]:
    """What is wrong with a variant however the runs came out."""
    found = [
        *_unread(item, written),
        *_unknown(written, evidence),
        *_foreign(_reworded(item, written), written.runs, evidence),
    ]
    if not found:
        found = [message for _, message in evidence_checks.mistakes(variant, evidence)]
    if not found and evidence.book.is_reference:
        found = list(_unprintable(variant, evidence))
    return found


def _misleading(item: Item, written: Variant, variant: Item, evidence: Evidence) -> list[str]:
    """What is wrong with a variant as the runs came out: elsewhere, a reason not to ask it."""
    found = list(_counted(_reworded(item, written), written, evidence))
    if found:
        return found
    if not _is_answerable(variant, evidence):
        return [_NO_KEY] if evidence.book.is_reference else []
    found = [*_told_apart(variant, evidence), *_reordered(item, variant, evidence)]
    if not found and _is_same(item, variant, evidence):
        found = ["this variant reads like the question itself; choose runs that differ"]
    return found


def _ranks(runs: Mapping[str, str], evidence: Evidence) -> Ranks | None:
    """The ranks of all runs that are replaced, where those in their place have others."""
    found = {
        (before.world_size, after.world_size)
        for old, new in runs.items()
        if (before := evidence.book.run(old)) and (after := evidence.book.run(new))
    }
    if len(found) != 1:
        return None
    ((num, there),) = found
    return Ranks(num, next(iter(runs.values()))) if there not in (1, num) else None


def _reworded(item: Item, written: Variant) -> Item:
    """An item of other ranks, claims and words, on its own runs."""

    def said(text: str, mark: str | None) -> str:
        if mark is None:
            return written.claims.get(text, text)
        for old, new in written.words.items():
            text = text.replace(old, new)
        if mark == "expression":
            return read(text)
        return _PRINTED.sub(lambda at: read(at[0]), text)

    def read(expression: str) -> str:
        for old, new in written.claims.items():
            expression = expression.replace(f"'{old}'", f"'{new}'")
        return _RANK.sub(lambda at: f"{at[1]}{written.ranks.get(int(at[2]), at[2])}", expression)

    return _mapped(item, said).model_copy(update={"variants": []})


def _on(item: Item, runs: Mapping[str, str], ranks: Ranks | None = None) -> Item:
    """An item with its runs replaced, in texts, expressions and the names of claims."""

    def there(text: str, mark: str | None) -> str:
        if mark in ("line", "prose"):
            text = _claims_on(names.of_text(text, runs), runs)
            return ranks.said(text) if ranks else text
        if mark == "expression":
            return _claims_on(names.of_expression(text, runs), runs)
        return runs.get(text, _claims_on(text, runs))

    return _mapped(item, there)


def _mapped(model: ModelT, said: Callable[[str, str | None], str]) -> ModelT:
    """A part of an item whose texts, each with its mark, become other ones."""
    changed = {
        name: _each(getattr(model, name), mark, said)
        for name, _, mark in marks(type(model))
        if name != "variants"
    }
    return model.model_copy(update=changed)


def _each(value: Any, mark: str | None, said: Callable[[str, str | None], str]) -> Any:  # noqa: ANN401
    if isinstance(value, BaseModel):
        return _mapped(value, said)
    if isinstance(value, list):
        return [_each(one, mark, said) for one in value]
    return said(value, mark) if isinstance(value, str) else value


def _claims_on(text: str, runs: Mapping[str, str]) -> str:
    return re.sub(r"@([a-z_][a-z0-9_]*\.[a-z0-9_]+)", lambda at: f"@{runs.get(at[1], at[1])}", text)


def _unread(item: Item, written: Variant) -> Iterator[str]:
    same = _reworded(item, Variant())
    for run in written.runs:
        if _on(same, {run: "experiment.run"}) == _on(same, {}):
            yield f"the question reads nothing of {run!r}"
    for kind in ("ranks", "claims", "words"):
        for old, new in getattr(written, kind).items():
            if _reworded(item, Variant(**{kind: {old: new}})) == same:
                yield f"the question has nothing to replace for {old!r} of {kind}:"


def _unprintable(variant: Item, evidence: Evidence) -> Iterator[str]:
    """A text of a variant that reads what its runs did not record."""
    for one in fields_of(variant):
        for found in prose.expressions(one.text) if one.mark in ("line", "prose") else ():
            problem = evidence.unprintable(evidence.evaluate(found.text))
            if problem:
                yield f"{found.text}: {problem}"


def _unknown(written: Variant, evidence: Evidence) -> Iterator[str]:
    book = evidence.book
    for old, claim in written.claims.items():
        for what, known in (("claim", book.claims), ("misconception", book.misconceptions)):
            if old in known and claim not in known:
                yield f"no {what} {claim!r}{nearest(claim, known)}"
    for run in written.runs.values():
        if book.run(run) is None and book.is_reference:
            yield f"no run {run!r}"


def _foreign(item: Item, runs: Mapping[str, str], evidence: Evidence) -> Iterator[str]:
    """A key that would still be judged on a run which the variant replaces."""
    for option in getattr(item, "options", ()):
        claim = option.right_if.claim if option.right_if else ""
        if claim in evidence.book.claims and claim == _claims_on(claim, runs):
            judged = set(evidence.outcome(claim).runs) & runs.keys()
            if judged:
                message = f"claim {claim!r}, which decides an option, is judged on {min(judged)!r}"
                yield f"{message}; write it over several runs (`for:`)"


def _counted(item: Item, written: Variant, evidence: Evidence) -> Iterator[str]:
    """A number that the text spells, where the variant has another one.

    With another number of ranks, a spelled number may be theirs unless it counts something else,
    as in *two moments*. Where it is theirs by its words, as in *four ranks*, a variant prints them.
    An author who replaces words has read the others: what only equals a setting is let stand.
    """
    ranks = _ranks(written.runs, evidence)
    for old, new in written.runs.items():
        before, after = evidence.book.run(old), evidence.book.run(new)
        if before is None or after is None:
            continue
        is_other = before.world_size != after.world_size
        changed = set() if written.words else {
            value for name, value in before.settings.items()
            if isinstance(value, int) and value != after.settings.get(name)
        }  # fmt: skip
        in_code = changed | ({before.world_size} if is_other and not written.words else set())
        for field in fields_of(item):
            if field.mark not in ("line", "prose"):
                continue
            text = ranks.said(field.text) if ranks else field.text
            if in_code & {
                int(one) for code in _CODE.findall(text) for one in _DIGITS.findall(code)
            }:
                yield f"a number in code stands in {field.name}:, and {new} has another one"
            for found in _COUNT.finditer(plain := prose.around(text)):
                spelled, noun = found[0], plain[found.end() :]
                is_theirs = is_other and not _OF_NO_RANKS.match(noun)
                if is_theirs or _COUNTS[spelled.lower()] in changed:
                    what = "number of ranks; print `world_size`" if is_other else "one; print it"
                    said = f"{spelled!r} stands in {field.name}:"
                    yield f"{said}, and {new} has another {what} instead"


def _told_apart(variant: Item, evidence: Evidence) -> Iterator[str]:
    """Two options that read alike, of which one may be right."""
    texts = [evidence.plain(one.says) for one in getattr(variant, "options", ())]
    for text in texts:
        if texts.count(text) > 1:
            yield f"two options of this variant read {text!r}; choose runs that differ"
            return


def _reordered(item: Item, variant: Item, evidence: Evidence) -> Iterator[str]:
    """Another order or other options: what explains the answer was written for the item's own."""
    if not isinstance(item, Choice | Several | Order) or not _is_answerable(item, evidence):
        return
    if key_of(item, evidence).right != key_of(variant, evidence).right:
        yield "another answer is right in this variant, and the explanations are of the item's own"


def _is_same(item: Item, variant: Item, evidence: Evidence) -> bool:
    """Whether a reader sees the same question."""
    return _seen(item, evidence) == _seen(variant, evidence)


def _seen(item: Item, evidence: Evidence) -> tuple[str, ...]:
    """What a reader sees of a question: its text, and what there is to choose from."""
    texts = [one.says for one in getattr(item, "options", ())]
    texts += [f"{one.left} {one.right}" for one in getattr(item, "pairs", ())]
    texts += [one.text for one in getattr(item, "pieces", ())]
    texts += [one.title for one in getattr(item, "rows", ())]
    return tuple(evidence.plain(text) for text in (item.stem, *texts))
