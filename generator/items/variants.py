"""A question on other runs: Recall asks the concept again, and not the same numbers.

In: an item that maps runs which it reads to other ones, as its author says (`variants:`) or as its
laws allow (`siblings.py`). Out: for each mapping the same item on those runs, and what is wrong
with it. Each has a key of its own, worked out from its runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from generator.content import names, prose
from generator.content.documents import fields_of
from generator.content.errors import ContentError
from generator.content.quiz import Item
from generator.content.words import marks
from generator.content.yaml_source import Path
from generator.evidence.value import AbsentError, ExpressionError
from generator.items import evidence_checks, siblings
from generator.items.item_seen import option_text
from generator.items.keys import key_of

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence

ModelT = TypeVar("ModelT", bound=BaseModel)
_COUNTS = {
    word: number
    for number, word in enumerate(("two", "three", "four", "five", "six", "seven", "eight"), 2)
}
_COUNT = re.compile(rf"\b(?:{'|'.join(_COUNTS)})\b", re.IGNORECASE)
_NO_KEY = "this variant has no single answer on the runs shown"


def variants_of(item: Item, evidence: Evidence) -> list[Item]:
    """An item on other runs: as the author maps them, or else where its laws were judged too."""
    return evidence.once("variants", item, lambda: _variants_of(item, evidence))


def _variants_of(item: Item, evidence: Evidence) -> list[Item]:
    if item.variants:
        return [
            _variant(item, runs, number, evidence) for number, runs in enumerate(item.variants, 1)
        ]
    found: list[Item] = []
    for runs in siblings.mappings(item, evidence):
        variant = _variant(item, runs, len(found) + 1, evidence)
        if not any(_wrong(item, runs, variant, evidence)):
            found.append(variant)
    return found


def _variant(item: Item, runs: Mapping[str, str], number: int, evidence: Evidence) -> Item:
    named = {"id": f"{item.id}-variant-{number}", "variants": []}
    variant = _on(item, runs).model_copy(update=named)
    return siblings.without_stale_claims(variant, runs, evidence)


def answerable(item: Item, evidence: Evidence) -> Iterator[tuple[int, Item]]:
    """The variants that have exactly one right answer on these runs, each with its number."""
    for number, variant in enumerate(variants_of(item, evidence), 1):
        if _is_answerable(variant, evidence):
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
    for number, (runs, variant) in enumerate(
        zip(item.variants, variants_of(item, evidence), strict=True)
    ):
        place: Path = ("variants", number)
        yield from ((place, message) for message in _wrong(item, runs, variant, evidence))


def _wrong(item: Item, runs: Mapping[str, str], variant: Item, evidence: Evidence) -> list[str]:
    """Everything for which a variant is no question of its own with one right answer."""
    found = [
        *_unread(item, runs), *_unknown(runs, evidence), *_foreign(item, runs, evidence),
        *_counted(item, runs, evidence),
    ]  # fmt: skip
    if not found:
        found = [message for _, message in evidence_checks.mistakes(variant, evidence)]
    has_key = not found and _is_answerable(variant, evidence)
    if not found and not has_key and evidence.book.is_reference:
        found = [_NO_KEY]
    if has_key and _is_same(item, variant, evidence):
        found = ["this variant reads like the question itself; choose runs that differ"]
    return found


def _on(model: ModelT, runs: Mapping[str, str]) -> ModelT:
    """A part of an item with its runs replaced, in texts, expressions and the names of claims."""
    changed = {
        name: _replaced(getattr(model, name), mark, runs)
        for name, _, mark in marks(type(model))
        if name != "variants"
    }
    return model.model_copy(update=changed)


def _replaced(value: Any, mark: str | None, runs: Mapping[str, str]) -> Any:  # noqa: ANN401
    if isinstance(value, BaseModel):
        return _on(value, runs)
    if isinstance(value, list):
        return [_replaced(one, mark, runs) for one in value]
    if not isinstance(value, str):
        return value
    if mark in ("line", "prose"):
        return _claims_on(names.of_text(value, runs), runs)
    if mark == "expression":
        return _claims_on(names.of_expression(value, runs), runs)
    return runs.get(value, _claims_on(value, runs))


def _claims_on(text: str, runs: Mapping[str, str]) -> str:
    return re.sub(r"@([a-z_]+\.[a-z0-9_]+)", lambda at: f"@{runs.get(at[1], at[1])}", text)


def _unread(item: Item, runs: Mapping[str, str]) -> Iterator[str]:
    for run in runs:
        if _on(item, {run: "experiment.run"}) == _on(item, {}):
            yield f"the question reads nothing of {run!r}"


def _unknown(runs: Mapping[str, str], evidence: Evidence) -> Iterator[str]:
    for run in runs.values():
        if evidence.book.run(run) is None and evidence.book.is_reference:
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


def _counted(item: Item, runs: Mapping[str, str], evidence: Evidence) -> Iterator[str]:
    """A number that the text spells, where the variant has another one.

    With another number of ranks, any spelled number may be theirs.
    """
    for old, new in runs.items():
        before, after = evidence.book.run(old), evidence.book.run(new)
        if before is None or after is None:
            continue
        changed = {value for name, value in before.settings.items()
                   if isinstance(value, int) and value != after.settings.get(name)}  # fmt: skip
        is_other = before.world_size != after.world_size
        for field in fields_of(item):
            if field.mark not in ("line", "prose"):
                continue
            for spelled in _COUNT.findall(prose.around(field.text)):
                if is_other or _COUNTS[spelled.lower()] in changed:
                    what = "number of ranks; print `world_size`" if is_other else "one; print it"
                    said = f"{spelled!r} stands in {field.name}:"
                    yield f"{said}, and {new} has another {what} instead"


def _is_same(item: Item, variant: Item, evidence: Evidence) -> bool:
    """Whether a reader sees the same question."""
    return _seen(item, evidence) == _seen(variant, evidence)


def _seen(item: Item, evidence: Evidence) -> tuple[str, ...]:
    """What a reader sees of a question: its text, and what there is to choose from."""
    texts = [option_text(one) for one in getattr(item, "options", ())]
    texts += [f"{one.left} {one.right}" for one in getattr(item, "pairs", ())]
    texts += [one.text for one in getattr(item, "pieces", ())]
    return tuple(evidence.plain(text) for text in (item.stem, *texts))
