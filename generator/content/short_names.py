"""Short names, written out as soon as a file is read: `with:` of lessons, `for:` of items.

In: a validated file, or its plain YAML and a path in it. Out: the file with the names written out
in every text, expression and id below the `with:` or `for:` that gives them, an item in its first
case and beside it in the others; or the names that count at a path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from generator.content import names
from generator.content.words import Naming, OverCases, marks

ModelT = TypeVar("ModelT", bound=BaseModel)
_TEXTS, _EXPRESSIONS = ("line", "prose"), ("expression", "per_run")
_IDS = frozenset(
    {"claim", "claims", "decides", "misconception", "misconceptions", "refuted_by", "run"}
)
RUN = re.compile(r"[a-z_][a-z0-9_]*\.[a-z0-9_]+")


def written_out(model: ModelT, short: Mapping[str, str]) -> ModelT:
    """A part of a file with the short names that count there written out."""
    if isinstance(model, OverCases) and model.cases:
        first, *others = (_within(model, {**short, **bound(case)}) for case in model.cases)
        return first.over(others)
    return _within(model, {**short, **model.short} if isinstance(model, Naming) else short)


def bound(case: Mapping[str, object]) -> dict[str, str]:
    """What the names of a case stand for; its words may print its runs."""
    plain = {name: str(value) for name, value in case.items() if isinstance(value, int | str)}
    paths = {name: text for name, text in plain.items() if RUN.fullmatch(text) or text.isdigit()}
    words = {
        name: names.Words(names.of_text(text, paths))
        for name, text in plain.items()
        if name not in paths
    }
    return paths | words


def _within(model: ModelT, short: Mapping[str, str]) -> ModelT:
    changed = {}
    for name, _, mark in marks(type(model)):
        value = getattr(model, name)
        now = value if name == "cases" else _value(value, mark or name, short)
        if now is not value:
            changed[name] = now
    return model.model_copy(update=changed) if changed else model


def _value(value: Any, mark: str, short: Mapping[str, str]) -> Any:  # noqa: ANN401
    if isinstance(value, str):
        return _text(value, mark, short)
    if isinstance(value, BaseModel):
        return written_out(value, short)
    if isinstance(value, list):
        found = [_value(one, mark, short) for one in value]
        return value if all(map(_is, found, value)) else found
    if isinstance(value, dict):
        pairs = {key: _value(one, mark, short) for key, one in value.items()}
        return value if all(map(_is, pairs.values(), value.values())) else pairs
    return value


def _is(one: object, other: object) -> bool:
    return one is other


def _text(text: str, mark: str, short: Mapping[str, str]) -> str:
    if short and mark in _TEXTS:
        return names.of_text(text, short)
    if short and mark in _EXPRESSIONS:
        return names.of_expression(text, short)
    if short and mark in _IDS:
        return names.of_id(text, short)
    return text


def given(written: object, path: tuple[str | int, ...]) -> tuple[dict[str, str], str]:
    """The short names that count at a path of plain YAML, and the text that is there."""
    short: dict[str, str] = {}
    for part in path:
        if isinstance(written, dict):
            short |= written.get("with") or {}
            short |= _of_first(written.get("for"))
            written = written.get(part)
        elif isinstance(written, list) and isinstance(part, int) and part < len(written):
            written = written[part]
    return short, written if isinstance(written, str) else ""


def _of_first(cases: object) -> dict[str, str]:
    """What the first case of `for:` binds, as it stands in plain YAML."""
    first = cases[0] if isinstance(cases, list) and cases else None
    return bound({"run": first} if isinstance(first, str) else first or {})
