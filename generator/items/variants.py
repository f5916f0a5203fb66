"""A question on other runs: Recall asks the concept again, and not the same numbers.

In: an item that maps runs which it reads to other ones (`variants:`). Out: for each mapping the
same item on those runs, and what is wrong with it. Each has a key of its own, worked out from its
runs.
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
from generator.items import evidence_checks
from generator.items.item_seen import option_text
from generator.items.keys import key_of

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence

ModelT = TypeVar("ModelT", bound=BaseModel)
_COUNT = re.compile(r"\b(?:two|three|four|five|six|seven|eight)\b", re.IGNORECASE)
_NO_KEY = "this variant has no single answer on the runs shown"


def variants_of(item: Item) -> list[Item]:
    """An item on other runs, in the order in which the author maps them."""
    return [
        _on(item, runs).model_copy(update={"id": f"{item.id}-variant-{number}", "variants": []})
        for number, runs in enumerate(item.variants, 1)
    ]


def answerable(item: Item, evidence: Evidence) -> Iterator[tuple[int, Item]]:
    """The variants that have exactly one right answer on these runs, each with its number."""
    for number, variant in enumerate(variants_of(item), 1):
        try:
            if not key_of(variant, evidence).is_open:
                evidence.plain(variant.stem)
                yield number, variant
        except (ContentError, ExpressionError, AbsentError):
            continue


def mistakes(item: Item, evidence: Evidence) -> Iterator[tuple[Path, str]]:
    """Everything for which a variant is no question of its own with one right answer."""
    on_runs = {number for number, _ in answerable(item, evidence)}
    for number, (runs, variant) in enumerate(zip(item.variants, variants_of(item), strict=True), 1):
        place: Path = ("variants", number - 1)
        found = [
            *_unread(item, runs), *_unknown(runs, evidence), *_foreign(item, runs, evidence),
            *_counted(item, runs, evidence),
        ]  # fmt: skip
        if not found:
            found = [message for _, message in evidence_checks.mistakes(variant, evidence)]
        if not found and number not in on_runs and evidence.book.is_reference:
            found = [_NO_KEY]
        if not found and number in on_runs and _is_same(item, variant, evidence):
            found = ["this variant reads like the question itself; choose runs that differ"]
        yield from ((place, message) for message in found)


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
    """A number of ranks that the text spells, where the variant has another one."""
    for old, new in runs.items():
        before, after = evidence.book.run(old), evidence.book.run(new)
        if before and after and before.world_size != after.world_size:
            for field in fields_of(item):
                spelled = _COUNT.search(_around(field.text))
                if field.mark in ("line", "prose") and spelled:
                    message = f"{spelled[0]!r} stands in {field.name}:, and {new} has"
                    yield f"{message} another number of ranks; print `world_size` instead"


def _around(text: str) -> str:
    """What a text says outside its expressions."""
    said, done = "", 0
    for one in prose.expressions(text):
        said, done = said + text[done : one.begin], one.end
    return said + text[done:]


def _is_same(item: Item, variant: Item, evidence: Evidence) -> bool:
    """Whether a reader sees the same question."""
    return _seen(item, evidence) == _seen(variant, evidence)


def _seen(item: Item, evidence: Evidence) -> tuple[str, ...]:
    """What a reader sees of a question: its text, and what there is to choose from."""
    texts = [option_text(one) for one in getattr(item, "options", ())]
    texts += [f"{one.left} {one.right}" for one in getattr(item, "pairs", ())]
    texts += [one.text for one in getattr(item, "pieces", ())]
    return tuple(evidence.plain(text) for text in (item.stem, *texts))
