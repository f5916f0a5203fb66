"""`with:` of lessons: short names for runs, written out as soon as a file is read.

In: a validated file, or its plain YAML and a path in it. Out: the file with the names written out
in every text and expression below the `with:` that gives them; or the names that count at a path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from generator.content import names
from generator.content.words import Naming, marks

ModelT = TypeVar("ModelT", bound=BaseModel)
_TEXTS, _EXPRESSIONS = ("line", "prose"), ("expression", "per_run")


def written_out(model: ModelT, short: Mapping[str, str]) -> ModelT:
    """A part of a file with the short names that count there written out."""
    own = {**short, **model.short} if isinstance(model, Naming) else short
    changed = {}
    for name, _, mark in marks(type(model)):
        value = getattr(model, name)
        now = _value(value, mark, own)
        if now is not value:
            changed[name] = now
    return model.model_copy(update=changed) if changed else model


def _value(value: Any, mark: str | None, short: Mapping[str, str]) -> Any:  # noqa: ANN401
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


def _text(text: str, mark: str | None, short: Mapping[str, str]) -> str:
    if short and mark in _TEXTS:
        return names.of_text(text, short)
    if short and mark in _EXPRESSIONS:
        return names.of_expression(text, short)
    return text


def given(written: object, path: tuple[str | int, ...]) -> tuple[dict[str, str], str]:
    """The short names that count at a path of plain YAML, and the text that is there."""
    short: dict[str, str] = {}
    for part in path:
        if isinstance(written, dict):
            short |= written.get("with") or {}
            written = written.get(part)
        elif isinstance(written, list) and isinstance(part, int) and part < len(written):
            written = written[part]
    return short, written if isinstance(written, str) else ""
